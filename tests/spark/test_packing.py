"""Cutting messages into request bodies."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.sink.entries import Entries, entries_of
from pyspark_nsq.sink.packing import Packer, Request, TopicPacker, deferred_request

from tests.spark.fake_nsqd import unpack

MESSAGES = st.lists(st.binary(min_size=1, max_size=40), max_size=60)


def all_of(messages: list[bytes]) -> Entries:
    [entries] = entries_of(pa.array(messages or [b""], pa.binary()))
    return entries.part(0, len(messages))


def body_of(request: Request) -> bytes:
    body = b"".join(request.body)
    assert len(body) == request.body_bytes
    return body


def packed(packer: TopicPacker, messages: list[bytes]) -> list[Request]:
    return [*packer.extend(all_of(messages)), *packer.flush()]


def test_the_bytes_of_a_batch() -> None:
    [request] = packed(TopicPacker("t", 10, 1000), [b"ab", b"c"])
    expected = b"\x00\x00\x00\x02" + b"\x00\x00\x00\x02ab" + b"\x00\x00\x00\x01c"
    assert expected == body_of(request)
    assert request.path == "/mpub?binary=true&topic=t"
    assert request.rows == 2


def test_the_bytes_of_a_batch_with_headers() -> None:
    [entries] = entries_of(pa.array([b"ab", b"c"], pa.binary()), pa.array([b"\x01k\x00\x01v", b""], pa.binary()))
    packer = TopicPacker("t", 10, 1000, has_headers=True)
    [request] = [*packer.extend(entries), *packer.flush()]
    expected = b"NSQH\x00\x00\x00\x02" + b"\x00\x00\x00\x05\x01k\x00\x01v" + b"\x00\x00\x00\x02ab"
    assert expected + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x01c" == body_of(request)
    assert request.path == "/mpub?binary=true&headers=true&topic=t"


def test_messages_with_headers_and_without_keep_their_order_in_requests_of_their_own() -> None:
    packer = Packer(10, 1000, 10_000)
    [with_headers] = entries_of(pa.array([b"b"], pa.binary()), pa.array([b"\x01k\x00\x01v"], pa.binary()))
    requests = [
        *(request for part in (all_of([b"a"]), with_headers, all_of([b"c"])) for request in packer.extend("t", part)),
        *packer.flush(),
    ]
    assert ["headers" in request.path for request in requests] == [False, True, False]
    assert [body_of(request)[-1:] for request in requests] == [b"a", b"b", b"c"]


def test_an_ephemeral_topic_is_quoted() -> None:
    [request] = packed(TopicPacker("t#ephemeral", 10, 1000), [b"a"])
    assert request.path.endswith("topic=t%23ephemeral")


def test_a_deferred_message_travels_alone() -> None:
    request = deferred_request("t#ephemeral", b"later", 1500)
    assert Request("/pub?topic=t%23ephemeral&defer=1500", (b"later",), "t#ephemeral", 1) == request


def test_a_deferred_message_with_headers_is_a_body_of_one() -> None:
    request = deferred_request("t", b"later", 1500, "c", b"\x02id\x00\x01a")
    assert request.path == "/mpub?binary=true&headers=true&topic=t&channel=c&defer=1500"
    assert b"".join(request.body) == b"NSQH\0\0\0\1\0\0\0\6\x02id\x00\x01a\0\0\0\5later"


def test_nothing_to_send() -> None:
    assert packed(TopicPacker("t", 10, 1000), []) == []


def test_cut_by_count() -> None:
    requests = packed(TopicPacker("t", 3, 10_000), [b"x"] * 7)
    assert [request.rows for request in requests] == [3, 3, 1]


def test_cut_by_bytes() -> None:
    exactly_two = 4 + 2 * (4 + 6)
    requests = packed(TopicPacker("t", 100, exactly_two), [b"sixsix"] * 5)
    assert [request.rows for request in requests] == [2, 2, 1]
    assert exactly_two == requests[0].body_bytes


def test_one_message_above_the_limit_travels_alone() -> None:
    requests = packed(TopicPacker("t", 100, 20), [b"a", b"b" * 50, b"c"])
    assert [unpack(body_of(request)) for request in requests] == [[b"a"], [b"b" * 50], [b"c"]]


def test_what_fills_requests_is_not_copied() -> None:
    entries = all_of([b"x" * 100] * 10)
    packer = TopicPacker("t", 4, 10_000)
    requests = [*packer.extend(entries), *packer.extend(all_of([b"y"])), *packer.flush()]
    assert [request.rows for request in requests] == [4, 4, 3]
    for request in requests[:2]:
        [_, part] = request.body
        assert isinstance(part, memoryview) and part.obj is entries.data.obj


def test_a_slice_that_waits_keeps_no_memory_of_a_batch_that_is_much_larger() -> None:
    for waiting, is_copied in ((4, True), (5, False)):
        packer = TopicPacker("t", 10 - waiting, 10_000)
        first = [*packer.extend(all_of([b"x"] * 10))]
        [rest] = packer.flush()
        assert ([10 - waiting], waiting) == ([request.rows for request in first], rest.rows)
        assert isinstance(rest.body[1], bytes) == is_copied


def test_many_small_parts_are_joined() -> None:
    messages = [b"%d" % index for index in range(40)]
    packer = TopicPacker("t", 40, 10_000)
    requests = [request for message in messages for request in packer.extend(all_of([message]))]
    requests += packer.flush()
    assert [messages] == [unpack(body_of(request)) for request in requests]
    assert len(requests[0].body) == 2


@given(MESSAGES, st.integers(1, 20), st.integers(1, 200), st.integers(1, 10))
def test_whatever_the_limits_all_messages_come_through_in_order(
    messages: list[bytes], max_rows: int, max_bytes: int, piece: int
) -> None:
    packer = TopicPacker("t", max_rows, max_bytes)
    requests = [
        request
        for start in range(0, len(messages), piece)
        for request in packer.extend(all_of(messages[start : start + piece]))
    ]
    requests += packer.flush()
    batches = [unpack(body_of(request)) for request in requests]
    assert messages == [message for batch in batches for message in batch]
    for request, batch in zip(requests, batches, strict=True):
        assert request.rows == len(batch) <= max_rows
        assert request.body_bytes <= max_bytes or len(batch) == 1
    for batch, following in pairwise(batches):
        # No cut without need: the next message would not have fitted.
        body_bytes = 4 + sum(4 + len(message) for message in [*batch, following[0]])
        assert len(batch) == max_rows or body_bytes > max_bytes


@given(st.lists(st.tuples(st.sampled_from("abc"), MESSAGES), max_size=10), st.integers(1, 300))
def test_many_topics_hold_no_more_than_allowed(given_: list[tuple[str, list[bytes]]], max_held: int) -> None:
    packer = Packer(max_rows=7, max_bytes=100, max_held_bytes=max_held)
    arrived: dict[str, list[bytes]] = {topic: [] for topic in "abc"}
    sent: dict[str, list[bytes]] = {topic: [] for topic in "abc"}
    for topic, messages in given_:
        sent[topic] += messages
        for request in packer.extend(topic, all_of(messages)):
            arrived[request.topic] += unpack(body_of(request))
        waiting = sum(len(message) for name in "abc" for message in sent[name][len(arrived[name]) :])
        assert waiting <= max_held
    for request in packer.flush():
        arrived[request.topic] += unpack(body_of(request))
    assert sent == arrived

"""Messages that are still the bytes of their publish are published like any others."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.core.packed_messages import PackedMessages, have_one_size
from nsqtw.core.segment import SEGMENT_BYTES, SEQUENCE_MASK, sequence_of
from tests.core.harness import BrokerHarness


def packed(*messages: bytes, before: bytes = b"") -> PackedMessages:
    buffer = before + b"".join(struct.pack(">i", len(message)) + message for message in messages)
    return PackedMessages(buffer, len(before), len(messages), len(messages[0]))


def numbered(count: int, size: int) -> list[bytes]:
    return [b"%*d" % (size, index % 10**size) for index in range(count)]


@given(st.integers(1, 600), st.integers(1, 5), st.integers(1, 700), st.binary(max_size=5))
def test_they_become_the_messages_they_were(count: int, size: int, most: int, before: bytes) -> None:
    messages = numbered(count, size)
    found = packed(*messages, before=before)
    assert (len(found), [*found]) == (count, messages)
    lists = [*found.lists(most)]
    assert [message for one in lists for message in one] == messages
    assert all(len(one) == most for one in lists[:-1]) and 0 < len(lists[-1]) <= most


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.binary(max_size=3))
def test_messages_of_one_size(sizes: list[int], before: bytes) -> None:
    buffer = before + b"".join(struct.pack(">i", size) + b"\0" * size for size in sizes)
    assert have_one_size(buffer, len(before), len(sizes), 4 + sizes[0]) == (len(set(sizes)) == 1)


def publish(harness: BrokerHarness, step: str, messages: list[bytes], *, is_packed: bool) -> list[object]:
    """Publish in one of several ways. The list gets what the publisher is told."""
    told: list[object] = []
    topic = harness.topic()
    if step == "packed" and is_packed:
        topic.put_packed(packed(*messages), told.append)
    elif step == "with ids":
        topic.put(messages, 0, told.append, assigned=told.append)
    elif step == "delayed":
        topic.put(messages, 20, told.append)
    else:
        topic.put(messages, 0, told.append)
    return told


STEPS = st.sampled_from(["packed", "packed", "plain", "with ids", "delayed"])


@given(st.lists(st.tuples(STEPS, st.integers(1, 300), st.integers(1, 4)), max_size=6))
def test_a_turn_with_them_is_as_one_without(steps: list[tuple[str, int, int]]) -> None:
    outcomes: list[tuple[object, ...]] = []
    for is_packed in (True, False):
        harness = BrokerHarness()
        reader = harness.reader(ready=2500)
        told = [publish(harness, step, numbered(count, size), is_packed=is_packed) for step, count, size in steps]
        found = reader.read()
        harness.now += 1
        found += reader.read()
        # The ids of each broker begin somewhere else.
        begin = min((sequence_of(message.id) for message in found), default=0)
        ids = [
            [(number & SEQUENCE_MASK) - begin for one in answers if isinstance(one, list) for number in one]
            for answers in told
        ]
        delivered = [(sequence_of(message.id) - begin, message.body) for message in found]
        outcomes.append((ids, delivered, [*map(len, told)], harness.topic().message_count))
    assert outcomes[0] == outcomes[1]


def test_many_of_them_are_in_several_segments_and_survive_a_crash() -> None:
    harness = BrokerHarness()
    harness.channel()
    messages = numbered(3000, 200)
    told: list[object] = []
    harness.topic().put_packed(packed(*messages), told.append)
    harness.turn()
    segments = harness.backend.queue("t").read(0, 10**9)
    assert len(segments) == 3 and all(len(segment.frames) <= SEGMENT_BYTES for segment in segments)
    harness.save()
    harness.crash()
    assert told == [None]
    assert harness.reader(ready=3000).bodies() == messages


def test_one_that_is_larger_than_a_segment() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    large = b"x" * (SEGMENT_BYTES + 1)
    harness.topic().put_packed(packed(large, large), lambda error: None)
    assert reader.bodies() == [large, large]


def test_a_broker_that_stops_refuses_them() -> None:
    harness = BrokerHarness()
    topic = harness.topic()
    harness.broker.begin_stop()
    told: list[object] = []
    topic.put_packed(packed(b"a"), told.append)
    assert [str(answer) for answer in told] == ["exiting"]

"""The codec's runs, what it asks before a body, how little it copies, and its parts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.errors import ClientError
from nsqtw.protocols.v2 import COMMANDS
from nsqtw.protocols.v2_codec import V2Codec, check_count, check_size, equal_messages
from tests.protocols.dialogue import int32, mpub, pub, sized
from tests.protocols.feeding import FIN, ID, Generous, Limits, accept, drain


def test_a_run_of_fins_is_one_command() -> None:
    codec = V2Codec(Limits, accept, COMMANDS)
    codec.feed(FIN * 100 + b"NOP\n" + FIN * 5 + FIN[:7])
    assert codec.next_command() == (b"FIN", (), [ID] * 100, 0)
    assert codec.next_command() == (b"NOP", [], [], 0)
    assert codec.next_command() == (b"FIN", (), [ID] * 5, 0)
    assert codec.next_command() is None
    codec.feed(FIN[7:] + FIN)
    assert codec.next_command() == (b"FIN", (), [ID] * 2, 0)


def test_a_run_of_fins_that_may_fail_is_not_a_long_one() -> None:
    codec = V2Codec(Limits, accept, COMMANDS)
    codec.feed(FIN * 1000)
    runs = [len(payload) for _, _, payload, _ in iter(codec.next_command, None)]
    assert sum(runs) == 1000
    assert max(runs) <= 8 + 32 + 128


def ids(*numbers: int) -> list[bytes]:
    return [b"%016x" % number for number in numbers]


class Expecting:
    """A codec of a consumer with these ids in flight; what came of the FINs: all ids, and how many came in order."""

    def __init__(self, *expected: bytes) -> None:
        self.expected = [*expected]
        self.codec = V2Codec(Limits, accept, COMMANDS)
        self.codec.expected_fins = lambda most, separator: separator.join(self.expected[:most])
        self.finished: list[bytes] = []
        self.in_order: list[int] = []

    def feed(self, data: bytes) -> None:
        self.codec.feed(data)
        while (command := self.codec.next_command()) is not None:
            verb, params, payload, count = command
            if count:
                assert (verb, payload) == (b"FIN", [])
                self.in_order.append(count)
                self.finished += self.expected[:count]
            elif verb == b"FIN":
                self.finished += payload or params
            self.expected = [one for one in self.expected if one not in self.finished]


def fins(*numbers: int) -> bytes:
    return b"".join(b"FIN %s\n" % one for one in ids(*numbers))


@pytest.mark.parametrize(
    ("sent", "in_order", "finished"),
    [
        pytest.param(fins(*range(10)), [8, 2], range(10), id="all"),
        pytest.param(fins(*range(7)), [7], range(7), id="some"),
        pytest.param(fins(*range(12)), [8, 2], range(12), id="more"),
        pytest.param(fins(3, 0, 1), [], [3, 0, 1], id="not the first"),
        pytest.param(fins(0, 2, 1), [1], [0, 2, 1], id="not the second"),
        pytest.param(fins(*range(6), 7, 6), [4, 2], [*range(6), 7, 6], id="not the last"),
        pytest.param(fins(0, 1) + b"NOP\n" + fins(2, 3), [2, 2], range(4), id="other commands between"),
        pytest.param(fins(0) + fins(1)[:-1] + b"\r\n" + fins(2), [1, 1], range(3), id="a line that ends otherwise"),
    ],
)
def test_fins_that_are_expected_are_not_looked_at(sent: bytes, in_order: list[int], finished: list[int]) -> None:
    one = Expecting(*ids(*range(10)))
    one.feed(sent)
    assert (one.in_order, one.finished) == (in_order, ids(*finished))


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(1, 60)))
def test_whatever_is_expected_and_however_it_comes_every_fin_is_taken_once(sent: list[int], cuts: list[int]) -> None:
    one, rest = Expecting(*ids(*range(6))), fins(*sent)
    for size in [*cuts, len(rest)]:
        one.feed(rest[:size])
        rest = rest[size:]
    assert one.finished == ids(*sent)


def test_many_are_asked_for_when_many_came_in_order() -> None:
    one, asked = Expecting(*ids(*range(300))), list[int]()
    expected = one.codec.expected_fins

    def ask(most: int, separator: bytes) -> bytes:
        asked.append(most)
        return expected(most, separator)

    one.codec.expected_fins = ask
    one.feed(fins(*range(100)))
    assert (asked, one.in_order) == ([8, 32, 60], [8, 32, 60])
    one.feed(fins(*range(100, 200)))
    assert asked[3:] == [100]
    one.feed(b"".join(fins(number) + b"NOP\n" for number in range(200, 300)))
    assert one.finished == ids(*range(300))
    assert max(asked[-90:]) == 8, "what comes one by one is not compared with all there could be"


def test_who_wants_to_see_each_command_does() -> None:
    one = Expecting(*ids(1, 2))
    one.codec.checks_each = True
    one.feed(fins(1, 2))
    assert (one.in_order, one.finished) == ([], ids(1, 2))


def test_a_run_of_pubs_to_one_topic_is_one_command() -> None:
    codec = V2Codec(Limits, accept, COMMANDS)
    codec.feed(pub(*[b"x"] * 1000) + pub(b"y", topic=b"u") + pub(b"z", b"z")[:-1])
    assert codec.next_command() == (b"PUB", [b"t"], [b"x"] * 1000, 0)
    assert codec.next_command() == (b"PUB", [b"u"], [b"y"], 0)
    assert codec.next_command() == (b"PUB", [b"t"], [b"z"], 0)
    assert codec.next_command() is None


# -- the check


class Picky:
    """A session that remembers what it was asked, and refuses the topic `bad`."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, tuple[bytes, ...]]] = []

    def __call__(self, verb: bytes, params: Sequence[bytes]) -> None:
        self.asked.append((verb, tuple(params)))
        if b"bad" in params:
            raise ClientError("E_BAD_TOPIC", "no")


@pytest.mark.parametrize("line", [b"PUB bad\n", b"MPUB bad\n", b"DPUB bad 1\n", b"AUTH bad\n", b"IDENTIFY bad\n"])
def test_a_command_is_refused_before_its_body_is_there(line: bytes) -> None:
    codec = V2Codec(Limits, Picky(), COMMANDS)
    codec.feed(line)
    with pytest.raises(ClientError, match="E_BAD_TOPIC no"):
        codec.next_command()


def test_only_commands_with_a_body_are_checked_before_it() -> None:
    check = Picky()
    codec = V2Codec(Limits, check, COMMANDS)
    codec.feed(b"SUB bad c\nRDY bad\nNOP\n" + FIN + mpub(b"a"))
    assert len(drain(codec)) == 5
    assert check.asked == [(b"MPUB", (b"t",))]


def test_the_line_of_a_pub_is_checked_until_it_was_right() -> None:
    check = Picky()
    codec = V2Codec(Limits, check, COMMANDS)
    for chunk in (pub(b"a"), pub(b"b") + b"NOP\n" + pub(b"c"), pub(b"d", topic=b"u"), pub(b"e", topic=b"u")):
        codec.feed(chunk)
        assert drain(codec)
    assert check.asked == [(b"PUB", (b"t",)), (b"PUB", (b"u",))]
    codec.checks_each = True
    codec.feed(pub(b"f", topic=b"u"))
    assert drain(codec)
    codec.feed(b"PUB bad\n")
    with pytest.raises(ClientError, match="E_BAD_TOPIC no"):
        codec.next_command()
    assert check.asked[2:] == [(b"PUB", (b"u",)), (b"PUB", (b"bad",))]


def test_the_line_of_an_mpub_is_checked_until_it_was_right() -> None:
    check = Picky()
    codec = V2Codec(Limits, check, COMMANDS)
    for bodies in ([b"a", b"b"], [b"c"], [b"d", b"e"] * 3):
        codec.feed(mpub(*bodies))
        assert codec.next_command() == (b"MPUB", [b"t"], bodies, 0)
    assert check.asked == [(b"MPUB", (b"t",))]
    codec.feed(mpub(b"unlike", b"sizes"))  # it takes the usual way, and is asked about
    assert codec.next_command() == (b"MPUB", [b"t"], [b"unlike", b"sizes"], 0)
    codec.checks_each = True
    codec.feed(mpub(b"a"))
    assert codec.next_command() == (b"MPUB", [b"t"], [b"a"], 0)
    assert check.asked == [(b"MPUB", (b"t",))] * 3


@pytest.mark.parametrize("size", [0, -1, Limits.max_msg_size + 1])
def test_a_pub_with_a_line_that_was_right_may_still_be_wrong(size: int) -> None:
    codec = V2Codec(Limits, accept, COMMANDS)
    codec.feed(pub(b"a"))
    assert drain(codec)
    codec.feed(b"PUB t\n" + int32(size))
    with pytest.raises(ClientError, match="E_BAD_MESSAGE"):
        codec.next_command()


@pytest.mark.parametrize("behind", [b"", b"NOP\n", mpub(b"c")])
def test_an_mpub_with_a_line_that_was_right_may_have_no_messages(behind: bytes) -> None:
    codec = V2Codec(Limits, accept, COMMANDS)
    codec.feed(mpub(b"a") + mpub() + behind)
    assert codec.next_command() == (b"MPUB", [b"t"], [b"a"], 0)
    with pytest.raises(ClientError, match="E_BAD_BODY MPUB invalid message count 0"):
        codec.next_command()


# -- work


class Counted(bytes):
    """Bytes that count what is copied out of them."""

    copied = 0

    def __getitem__(self, index: Any) -> Any:
        got = super().__getitem__(index)
        if isinstance(index, slice):
            self.copied += len(got)
        return got


@pytest.mark.plain  # compiled, a slice of bytes does not go through their __getitem__
@pytest.mark.parametrize("between", [b"NOP\n", b"REQ " + ID + b" 0\n", b"FIN " + ID + b"\r\n", b"FIN x\n"])
def test_single_fins_among_other_commands_are_not_quadratic(between: bytes) -> None:
    data = Counted((FIN + between) * 2000)
    codec = V2Codec(Generous, accept, COMMANDS)
    codec.feed(data)
    assert len(drain(codec)) == 4000
    assert len(data) // 2 <= data.copied <= 30 * len(data)


@pytest.mark.plain  # of what is compiled a profiler sees no calls
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pub(b"x" * (1 << 20)), id="PUB"),
        pytest.param(b"IDENTIFY\n" + sized(b"x" * (1 << 16)), id="IDENTIFY"),
        pytest.param(mpub(*[b"x" * (1 << 20)] * 4), id="MPUB of equal ones"),
        pytest.param(mpub(*[b"x" * ((1 << 20) - n) for n in range(4)]), id="MPUB of unequal ones"),
    ],
)
def test_a_large_body_in_many_pieces_is_joined_a_few_times(data: bytes) -> None:
    joins = 0

    def count_joins(frame: Any, event: str, called: Any) -> None:
        nonlocal joins
        if event == "c_call" and called.__name__ == "join" and isinstance(called.__self__, bytes):
            joins += 1

    codec = V2Codec(Generous, accept, COMMANDS)
    found: list[Any] = []
    sys.setprofile(count_joins)
    try:
        for at in range(0, len(data), 1460):
            codec.feed(data[at : at + 1460])
            found += drain(codec)
    finally:
        sys.setprofile(None)
    assert [item[0] for item in found] == [data.split(maxsplit=1)[0]]
    assert 0 < joins <= 20


@pytest.mark.plain  # of what is compiled a profiler sees no calls
def test_an_mpub_of_many_small_messages_in_many_pieces_looks_at_each_message_once() -> None:
    sizes = [20 + n % 7 for n in range(20000)]
    data = mpub(*[b"x" * size for size in sizes])
    calls = 0

    def count_calls(frame: Any, event: str, called: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    codec = V2Codec(Generous, accept, COMMANDS)
    found: list[Any] = []
    sys.setprofile(count_calls)
    try:
        for at in range(0, len(data), 1460):
            codec.feed(data[at : at + 1460])
            found += drain(codec)
    finally:
        sys.setprofile(None)
    assert [len(body) for body in found[0][2]] == sizes
    assert calls <= 20 * len(sizes)


# -- the parts


@given(
    sizes=st.one_of(st.lists(st.integers(0, 22), max_size=8), st.builds(lambda n: [4] * n, st.integers(0, 8))),
    cut_off=st.integers(0, 30),
    offset=st.integers(0, 5),
    count=st.integers(0, 9),
)
def test_equal_messages_are_those_that_are_there(sizes: list[int], cut_off: int, offset: int, count: int) -> None:
    bodies = [(int32(4) * 6)[:size] for size in sizes]  # the insides look like sizes
    buffer = b"?" * offset + b"".join(map(sized, bodies))
    buffer = buffer[: max(offset, len(buffer) - cut_off)]
    there: list[bytes] = []
    end = offset
    for body in bodies[:count]:
        end += len(sized(body))
        if end > len(buffer):
            break
        there.append(body)
    found = equal_messages(buffer, offset, count, 20)
    if found is not None:
        assert found == there[: len(found)]
        assert len(set(map(len, found))) <= 1 and all(0 < len(body) <= 20 for body in found)
    if len(set(sizes)) == 1 and 0 < sizes[0] <= 20:
        assert found == there


@pytest.mark.parametrize("count", [1, 2, 12])
def test_counts_an_mpub_may_have(count: int) -> None:
    check_count(count, 64)


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 13, 2**31 - 1])
def test_counts_an_mpub_may_not_have(count: int) -> None:
    with pytest.raises(ClientError) as refused:
        check_count(count, 64)
    assert str(refused.value) == f"E_BAD_BODY MPUB invalid message count {count}"


@pytest.mark.parametrize("size", [1, 19, 20])
def test_sizes_a_message_may_have(size: int) -> None:
    check_size(0, size, 20)


def test_sizes_a_message_may_not_have() -> None:
    for size, text in ((0, "invalid message(7) body size 0"), (-5, "invalid message(7) body size -5")):
        with pytest.raises(ClientError) as refused:
            check_size(7, size, 20)
        assert str(refused.value) == f"E_BAD_MESSAGE MPUB {text}"
    with pytest.raises(ClientError) as refused:
        check_size(7, 21, 20)
    assert str(refused.value) == "E_BAD_MESSAGE MPUB message too big 21 > 20"

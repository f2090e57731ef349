"""How many FINs of a consumer are worth a read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.protocols.fin_coalescing import (
    FLUSH_SECONDS,
    MAX_REST_SECONDS,
    MIN_IN_FLIGHT,
    MIN_SHARE,
    RATE_READS,
    WINDOW_GROWTH,
    FinCoalescing,
)
from tests.protocols.dialogue import OK, Peer, V2Harness, message, pub

FIN = b"FIN 0123456789abcdef\n"
IN_FLIGHT = 1024
SHARE = 32
FAST = FLUSH_SECONDS / SHARE / 2
"""Between two FINs, so that a share of IN_FLIGHT is there in half a moment."""


class Reads:
    """What reads bring of one consumer, one after the other."""

    def __init__(self, in_flight: int = IN_FLIGHT) -> None:
        self.fin_coalescing = FinCoalescing()
        self.in_flight = in_flight
        self.now = 5.0

    def bring(self, answers: int, seconds: float = FAST) -> int:
        """One, so long after the last. How many bytes are worth the next."""
        self.now += seconds
        self.fin_coalescing.record(answers, self.in_flight, self.now)
        return self.fin_coalescing.min_read_bytes

    def single(self, count: int, seconds: float = FAST) -> list[int]:
        """So many of one FIN each."""
        return [self.bring(1, seconds) for _ in range(count)]


def test_fins_that_come_fast_and_one_by_one_gather_up_to_a_share() -> None:
    reads = Reads()
    assert reads.single(RATE_READS) == [1] * RATE_READS
    assert reads.single(2) == [SHARE * len(FIN)] * 2


def test_those_that_come_slowly_do_not() -> None:
    assert Reads().single(10 * RATE_READS, 1.1 * FAST) == [1] * 10 * RATE_READS


def test_those_that_come_together_do_not() -> None:
    reads = Reads()
    assert {reads.bring(SHARE) for _ in range(10 * RATE_READS)} == {1}


def test_a_read_of_many_begins_anew() -> None:
    reads = Reads()
    reads.single(RATE_READS)
    reads.bring(SHARE)
    assert reads.single(RATE_READS + 1) == [1] * RATE_READS + [SHARE * len(FIN)]


def test_a_read_without_fins_says_nothing() -> None:
    reads = Reads()
    reads.single(RATE_READS)
    reads.bring(0, 0)
    assert reads.single(1) == [SHARE * len(FIN)]


def test_the_share_follows_what_is_in_flight() -> None:
    reads = Reads()
    reads.single(RATE_READS + 1)
    reads.in_flight = 2 * IN_FLIGHT
    assert reads.bring(SHARE) == 2 * SHARE * len(FIN)
    reads.in_flight = MIN_IN_FLIGHT
    assert reads.bring(2 * SHARE) == SHARE * MIN_IN_FLIGHT // IN_FLIGHT * len(FIN)
    reads.in_flight = MIN_IN_FLIGHT - 1
    assert reads.bring(SHARE) == 1


def test_where_less_came_in_a_moment_half_of_it_is_a_share() -> None:
    reads = Reads()
    reads.single(RATE_READS + 1)
    assert reads.bring(SHARE - 2, 2 * FLUSH_SECONDS) == 1
    half = SHARE // 2 - 1
    assert reads.single(RATE_READS + 1) == [1] * RATE_READS + [half * len(FIN)]
    for _ in range(round(1 / WINDOW_GROWTH)):
        assert reads.bring(half) >= half * len(FIN)
    assert reads.bring(half) == (half + 1) * len(FIN)


def test_where_few_came_in_a_moment_it_is_tried_again_later_and_later() -> None:
    reads, rest = Reads(), FLUSH_SECONDS
    for _ in range(12):
        assert reads.single(RATE_READS + 1)[-1] == SHARE * len(FIN)
        assert reads.bring(2 * MIN_SHARE - 1, 2 * FLUSH_SECONDS) == 1
        reads.now += rest - 2 * RATE_READS * FAST
        assert set(reads.single(RATE_READS + 1)) == {1}
        reads.now += RATE_READS * FAST
        rest = min(2 * rest, MAX_REST_SECONDS)


def test_once_a_share_has_come_it_is_tried_again_soon() -> None:
    reads = Reads()
    for _ in range(5):
        reads.single(RATE_READS + 1)
        reads.bring(0, 2 * FLUSH_SECONDS)
        reads.now += MAX_REST_SECONDS
    reads.single(RATE_READS + 1)
    reads.bring(SHARE)
    reads.bring(0, 2 * FLUSH_SECONDS)
    reads.now += FLUSH_SECONDS
    assert reads.single(RATE_READS + 1)[-1] == SHARE * len(FIN)


def test_a_share_may_take_longer_and_less_may_be_read_sooner() -> None:
    reads = Reads()
    reads.single(RATE_READS + 1)
    assert reads.bring(SHARE, 10 * FLUSH_SECONDS) == SHARE * len(FIN)
    assert reads.bring(1) == SHARE * len(FIN)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5000), st.floats(0, 0.01))))
def test_never_more_than_a_32nd_of_what_is_in_flight(reads: list[tuple[int, int, float]]) -> None:
    fin_coalescing, now = FinCoalescing(), 0.0
    for answers, left, seconds in reads:
        now += seconds
        fin_coalescing.record(answers, left, now)
        assert fin_coalescing.min_read_bytes <= max(1, left // 32 * len(FIN))


def busy(stage: V2Harness, count: int) -> tuple[Peer, list[bytes]]:
    """A consumer with so many in flight, and the FINs for them."""
    client = stage.connect()
    client.subscribe(ready=2 * count)
    client.send(pub(*[b"x"] * count))
    got = client.expect(*[OK] * count, *[message(b"x")] * count)
    return client, [b"FIN %s\n" % one.id for one in got]


def test_a_consumer_with_much_in_flight_is_read_from_for_several_fins() -> None:
    client, fins = busy(V2Harness(), 2 * MIN_IN_FLIGHT)
    client.send(*fins[:RATE_READS])
    assert client.session.wants_data == 1
    client.send(fins[RATE_READS])
    assert client.session.wants_data == MIN_IN_FLIGHT // 32 * len(FIN)


def test_one_with_little_in_flight_for_each() -> None:
    client, fins = busy(V2Harness(), MIN_IN_FLIGHT)
    client.send(*fins)
    assert client.session.wants_data == 1


def test_one_whose_messages_are_gone_is_read_from_for_each_again() -> None:
    stage = V2Harness()
    client, fins = busy(stage, 2 * MIN_IN_FLIGHT)
    client.send(*fins[: RATE_READS + 1])
    stage.broker.topics["t"].channels["c"].empty()
    client.send(pub(b"y"))
    client.expect(OK, message(b"y"))
    assert client.session.wants_data == 1

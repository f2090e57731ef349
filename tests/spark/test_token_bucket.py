"""The limit on the rate of messages, with a clock of its own."""

import pytest
from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.token_bucket import TokenBucket


class Clock:
    """Time passes only by sleeping, which lasts somewhat too short."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += max(seconds * 0.9, 1e-6)


def test_no_message_passes_before_its_time() -> None:
    clock = Clock()
    bucket = TokenBucket(100, 0, clock, clock.sleep)
    for number in range(1, 51):
        bucket.take(20)
        assert 0 <= clock.now - 1000 - number * 0.2 < 0.001


def test_after_a_pause_no_more_than_the_capacity_passes_at_once() -> None:
    clock = Clock()
    bucket = TokenBucket(100, 50, clock, clock.sleep)
    bucket.take(50)
    assert clock.now == 1000, "it begins full"
    clock.now += 60
    bucket.take(50)
    assert clock.now == 1060
    bucket.take(10)
    assert clock.now == pytest.approx(1060.1, abs=0.001)


def test_a_batch_that_is_larger_than_the_capacity_waits_for_all_of_it() -> None:
    clock = Clock()
    bucket = TokenBucket(10, 5, clock, clock.sleep)
    bucket.take(25)
    assert clock.now == pytest.approx(1002, abs=0.001)


def test_a_burst_without_a_rate_is_refused() -> None:
    with pytest.raises(OptionError, match='"burstRows" is of no use without "maxRowsPerSecond"'):
        SinkOptions.parse({"nsqdHttpAddresses": "127.0.0.1:4151", "burstRows": "1"})

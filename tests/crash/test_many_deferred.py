"""More deferred messages than a channel has in memory, over the ends of brokers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.process import Counts, NsqdProcess

CLOCK_SLACK_SECONDS = 0.01
SOON, LATE = 300, 2200


@pytest.mark.parametrize(
    ("flags", "die"), [([], NsqdProcess.kill), (["--backend=sqlite"], NsqdProcess.kill), ([], NsqdProcess.stop)]
)
def test_they_are_all_there_and_none_is_early(
    start: Callable[..., NsqdProcess], flags: list[str], die: Callable[[NsqdProcess], None]
) -> None:
    """DPUB and HTTP, some of them days ahead; the broker ends twice, the second time when they are rows and no more."""
    nsqd = start("--max-defer-timeout=240h", *flags)
    nsqd.create("t", "c", "d")
    with nsqd.client() as client:
        for number in range(LATE):
            client.dpub("t", 200 * 3_600_000 + number, b"late")
        since = time.monotonic()
        for number in range(SOON):
            client.dpub("t", 2000, b"%d" % number)
    assert nsqd.http("POST", "/pub?topic=t&defer=864000000", b"latest").status == 200
    die(nsqd)
    nsqd.start()
    for name in ("c", "d"):
        assert sum(nsqd.counts("t", name)) == SOON + LATE + 1
    nsqd.store()
    die(nsqd)
    nsqd.start()
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=2 * SOON)
        received = consumer.drain(1)
        assert time.monotonic() >= since + 2 - CLOCK_SLACK_SECONDS
        received += consumer.drain(SOON - 1)
    assert sorted(int(message.body) for message in received) == list(range(SOON))
    nsqd.await_counts("t", "c", Counts(0, 0, LATE + 1))
    nsqd.await_counts("t", "d", Counts(SOON, 0, LATE + 1))

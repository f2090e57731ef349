"""
The wall clock is set by hours, forwards and backwards, while a broker runs and while it does not.

What waits in a running broker goes by another clock; here an hour is never waited for, so "not yet" can be told from
"an hour late" and "at once" on any machine.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from tests.crash.faults import FaultyNsqd
from tests.process import Counts, wait_until

HOURS = 7 * 3600.0
DELAY_MS = 3_000_000
"""50 minutes: much less than any jump, and more than any test takes."""
JUMPS = [HOURS, -HOURS]
LINE = re.compile(r"\[nsqd\] (\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)")


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[FaultyNsqd]:
    flags = ("--msg-timeout=2s", "--e2e-processing-latency-percentile=0.5,1.0")
    with closing(FaultyNsqd(tmp_path, *flags)) as nsqd:
        nsqd.start()
        yield nsqd
    nsqd.assert_no_traceback()


@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_while_it_runs_moves_nothing_that_waits(nsqd: FaultyNsqd, jump: float) -> None:
    """
    A short delay ends though the clock says it is long over, or still far; a long one does not. After a restart too.
    """
    nsqd.create("t", "c")
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=10)
        consumer.dpub("t", DELAY_MS, b"late")
        consumer.pub("t", b"requeued")
        consumer.req(consumer.message(), DELAY_MS)
        nsqd.await_counts("t", "c", Counts(0, 0, 2))
        nsqd.store()
        before = time.monotonic()
        consumer.pub("t", b"timeout")
        assert consumer.message().body == b"timeout"
        consumer.dpub("t", 1000, b"soon")
        nsqd.set_wall(jump)
        again = {message.body: message.attempts for message in consumer.take(2)}
        assert again == {b"timeout": 2, b"soon": 1}
        assert time.monotonic() - before > 1.9, "early"
        assert nsqd.counts("t", "c").deferred == 2
        consumer.cls()
    wait_until(lambda: "the wall clock jumped by" in nsqd.said(), "the log says it")
    nsqd.store()
    nsqd.kill()
    nsqd.start()
    assert nsqd.counts("t", "c").deferred == 2
    nsqd.restart()
    assert nsqd.counts("t", "c").deferred == 2


@pytest.mark.parametrize("jump", JUMPS)
def test_timestamps_and_ids_and_latencies(nsqd: FaultyNsqd, jump: float) -> None:
    """Timestamps go with the wall, ids do not repeat, and nothing is said to have taken hours."""
    nsqd.create("t", "c")
    ids, stamps = set(), []
    with nsqd.client() as consumer:
        consumer.identify(msg_timeout=900_000)  # or a slow machine finishes too late
        consumer.sub("t", "c", ready=10)
        consumer.pub("t", b"before")
        first = consumer.message()
        nsqd.set_wall(jump)
        consumer.pub("t", b"after")
        second = consumer.message()
        nsqd.set_wall(0)
        consumer.pub("t", b"back")
        third = consumer.message()
        consumer.fin([first, second, third])
        consumer.cls()
        ids = {message.id for message in (first, second, third)}
        stamps = [message.timestamp_ns / 1e9 for message in (first, second, third)]
    assert len(ids) == 3
    now = time.time()
    assert [abs(stamp - now - wrong) < HOURS / 4 for stamp, wrong in zip(stamps, (0, jump, 0), strict=True)] == [
        True
    ] * 3
    (topic,) = nsqd.stats("t")
    (channel,) = topic["channels"]
    latency = channel["e2e_processing_latency"]
    assert latency["count"] == 3
    assert all(0 <= one["value"] < 1800e9 for one in latency["percentiles"]), latency
    lines = [LINE.match(line) for line in nsqd.said().splitlines()]
    said = [datetime.strptime(line[1], "%Y/%m/%d %H:%M:%S").timestamp() - now - jump for line in lines if line]
    assert any(abs(moment) < HOURS / 4 for moment in said), "lines of the log go with the wall"


@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_while_it_is_down_shifts_what_is_deferred_by_as_much(nsqd: FaultyNsqd, jump: float) -> None:
    """
    Nobody can tell a jump from time that passed: what was due within the jump comes at the start, what was due
    later stays. Backwards, all of it stays that much longer.
    """
    nsqd.create("t", "c")
    with nsqd.client() as producer:
        producer.dpub("t", DELAY_MS, b"deferred")
        producer.pub("t", b"at once")
    nsqd.await_counts("t", "c", Counts(1, 0, 1))
    nsqd.stop()
    nsqd.set_wall(jump)
    nsqd.start()
    expected = {b"at once", b"deferred"} if jump > 0 else {b"at once"}
    wait_until(lambda: nsqd.counts("t", "c").depth == len(expected), "what is due is there")
    assert nsqd.counts("t", "c") == Counts(len(expected), 0, 2 - len(expected))
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=10)
        old = consumer.drain(len(expected))
        assert {message.body for message in old} == expected
        consumer.pub("t", b"new")
        (new,) = consumer.drain(1)
        assert new.id not in {message.id for message in old}
        consumer.cls()

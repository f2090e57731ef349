"""A channel that is moved back, on brokers with files: nothing unfinished is lost, also by their ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from nsqtw.tools.migrate_backend import migrate_backend
from tests.process import Counts, NsqdProcess


@pytest.mark.parametrize("die", [NsqdProcess.kill, NsqdProcess.stop])
@pytest.mark.parametrize(("backend", "other"), [("disk", "sqlite"), ("sqlite", "disk")])
def test_what_is_unfinished_survives_a_move_back_an_end_and_a_migration(
    start: Callable[..., NsqdProcess], backend: str, other: str, die: Callable[[NsqdProcess], None]
) -> None:
    nsqd = start(f"--backend={backend}")
    nsqd.create("t", "c")
    nsqd.publish("t", [b"%d" % number for number in range(6)])
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=5)
        got = consumer.take(5)
        consumer.rdy(0)
        consumer.fin(got[:3])
        consumer.req(got[3], 900_000)
        nsqd.await_counts("t", "c", Counts(1, 1, 1))
        for to in ("earliest", "1700000000"):
            answer = nsqd.http("POST", f"/v2/channel/seek?topic=t&channel=c&to={to}")
            assert {**json.loads(answer.body), "position": 0} == {
                "position": 0,
                "skipped": 0,
                "replayed": 0,
                "depth": 1,
                "max_drops": 0,
            }
            assert nsqd.counts("t", "c") == Counts(1, 1, 1)
        die(nsqd)
    nsqd.start()
    assert nsqd.counts("t", "c") == Counts(2, 0, 1)
    nsqd.stop()
    migrate_backend(str(nsqd.data_path), backend, other, lambda line: None)
    nsqd._command.append(f"--backend={other}")
    nsqd.start()
    assert nsqd.counts("t", "c") == Counts(2, 0, 1)
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=5)
        assert sorted(message.body for message in consumer.drain(2)) == [b"4", b"5"]
    nsqd.await_counts("t", "c", Counts(0, 0, 1))

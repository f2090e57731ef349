"""Retention and replay with real processes: over SIGKILL, on each backend that outlives one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.process import NsqdProcess

BODIES = [b"%03d" % number for number in range(300)]


@pytest.mark.parametrize("backend", ["disk", "sqlite"])
def test_a_channel_is_moved_over_and_over_and_killed_in_between(tmp_path: Path, backend: str) -> None:
    """What a seek answered holds, whenever the process dies; what was finished before a save stays in the log."""
    nsqd = NsqdProcess(tmp_path, f"--backend={backend}", "--retention-time=1h", "--max-bytes-per-file=4096")
    try:
        nsqd.start()
        nsqd.create("t", "c")
        nsqd.publish("t", BODIES)
        for _ in range(2):
            assert sorted(message.body for message in nsqd.drain("t", "c", len(BODIES))) == BODIES
            nsqd.store()
            moved = json.loads(nsqd.http("POST", "/v2/channel/seek?topic=t&channel=c&to=earliest").body)
            assert (moved["replayed"], moved["skipped"], moved["depth"]) == (len(BODIES), 0, len(BODIES))
            nsqd.kill()
            nsqd.start()
        assert json.loads(nsqd.http("POST", "/v2/channel/seek?topic=t&channel=c&to=latest").body)["skipped"] == 300
        nsqd.kill()
        nsqd.start()
        assert nsqd.counts("t", "c") == (0, 0, 0)
        nsqd.order("/channel/create?topic=t&channel=d&start=earliest")
        nsqd.kill()
        nsqd.start()
        assert sorted(message.body for message in nsqd.drain("t", "d", len(BODIES))) == BODIES
        nsqd.restart()
        log = nsqd.http("GET", "/v2/topic/log?topic=t")
        assert all(body in log.body for body in BODIES)
        nsqd.assert_no_traceback()
    finally:
        nsqd.close()

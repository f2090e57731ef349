"""
EIO: the disk fails at reading, writing and syncing, for every class and both backends (docs/how-to/recovery.md).
A refused publish may or may not be there after a restart; all else is as promised.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.faults import FaultyNsqd
from tests.process import NOTHING, Answer, wait_until

STORAGES = {
    "os": (),
    "fsync": ("--durability=fsync",),
    "sqlite": ("--backend=sqlite",),
    "sqlite fsync": ("--backend=sqlite", "--durability=fsync"),
}
BODIES = [b"%05d" % number for number in range(20)]
WELL = Answer(200, b"OK")


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def nsqd(storage: str, tmp_path: Path) -> Iterator[FaultyNsqd]:
    with closing(FaultyNsqd(tmp_path, *STORAGES[storage])) as nsqd:
        nsqd.start()
        nsqd.create("t", "c", "later")
        nsqd.publish("t", BODIES)
        yield nsqd
    nsqd.assert_no_traceback()


def waits(nsqd: FaultyNsqd) -> bool:
    """Whether a publish has to be on the medium before it is answered."""
    return any("fsync" in word for word in nsqd.command())


def messages_path(nsqd: FaultyNsqd) -> str:
    return "messages.db" if any("sqlite" in word for word in nsqd.command()) else ".log"


def assert_all_is_there(nsqd: FaultyNsqd, bodies: list[bytes], refused: bytes) -> None:
    """
    After a kill: everything acknowledged, in order, and nothing else but perhaps what was refused. The depth may have
    been saved without that one before.
    """
    nsqd.kill()
    nsqd.start()
    with nsqd.client() as consumer:
        consumer.sub("t", "later", ready=500)
        got = [message.body for message in consumer.drain(len(bodies))]
        if refused in got:
            got += [message.body for message in consumer.drain(1)]
        nsqd.await_counts("t", "later", NOTHING)
    assert [body for body in got if body != refused] == bodies


def test_a_write_that_fails_refuses_and_heals(nsqd: FaultyNsqd) -> None:
    nsqd.fail("write", "EIO")
    assert nsqd.http("POST", "/pub?topic=t", b"refused").status == 503
    assert nsqd.http("GET", "/ping").status == 500
    nsqd.heal()
    wait_until(lambda: nsqd.http("GET", "/ping") == WELL, "/ping says OK")
    nsqd.publish("t", [b"afterwards"])
    got = [message.body for message in nsqd.drain("t", "c", len(BODIES) + 1)]
    assert got == [*BODIES, b"afterwards"], "what was refused is not delivered"
    assert_all_is_there(nsqd, [*BODIES, b"afterwards"], b"refused")


def test_a_sync_that_fails_refuses_only_who_waits_for_it(nsqd: FaultyNsqd) -> None:
    nsqd.fail("sync", "EIO", messages_path(nsqd))
    answer = nsqd.http("POST", "/pub?topic=t", b"synced")
    if waits(nsqd):
        assert answer.status == 503
        assert nsqd.http("GET", "/ping").status == 500
        expected = BODIES
    else:
        assert answer.status == 200
        text = "what was stored may not survive a power loss - "
        wait_until(lambda: text in nsqd.said(), "the log says it")
        expected = [*BODIES, b"synced"]
    nsqd.heal()
    wait_until(lambda: nsqd.http("GET", "/ping") == WELL, "/ping says OK")
    nsqd.publish("t", [b"afterwards"])
    expected = [*expected, b"afterwards"]
    assert [message.body for message in nsqd.drain("t", "c", len(expected))] == expected
    assert_all_is_there(nsqd, expected, b"synced" if waits(nsqd) else b"")


# Reading is the same for every class.
@pytest.mark.parametrize("storage", ["os", "sqlite"])
def test_a_read_that_fails_is_tried_again_and_costs_nothing(nsqd: FaultyNsqd) -> None:
    """A start with it fails and says so; in a running broker consumers wait."""
    nsqd.kill()  # nothing of it is in memory now
    nsqd.fail("read", "EIO", messages_path(nsqd))
    done = subprocess.run(nsqd.command(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"FATAL: failed to .*(input/output error|disk I/O error)\n$", done.stderr), done.stderr
    nsqd.heal()
    nsqd.start()
    nsqd.fail("read", "EIO", messages_path(nsqd))
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=10)
        wait_until(lambda: "TOPIC(t): failed to read, will try again - " in nsqd.said(), "the log says it")
        nsqd.publish("t", [b"meanwhile"])
        nsqd.heal()
        assert [message.body for message in consumer.drain(len(BODIES) + 1)] == [*BODIES, b"meanwhile"]
        consumer.cls()
    assert "are lost" not in nsqd.said()
    assert_all_is_there(nsqd, [*BODIES, b"meanwhile"], b"")

"""
A disk without space: publishing is refused, everything else goes on, and when there is space again all goes on by
itself. What was answered with OK is delivered, and nothing else.

Where this process may mount file systems, the same is done on a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.disks import Disk, FaultyDisk, MountedDisk, can_mount
from tests.process import NOTHING, Answer, NsqdProcess, wait_until
from tests.wire import Refused

KINDS: dict[str, Callable[..., Any]] = {
    "full": lambda path, *flags: FaultyDisk(path, "ENOSPC", *flags),
    "quota": lambda path, *flags: FaultyDisk(path, "EDQUOT", *flags),
}
if can_mount():
    KINDS["mounted"] = MountedDisk
STORAGES = {
    "os": (),
    "fsync": ("--durability=fsync",),
    "sqlite": ("--backend=sqlite",),
    "sqlite fsync": ("--backend=sqlite", "--durability=fsync"),
}
LARGE = 150_000
MANY = 8 * (1 << 20) // LARGE + 10
"""So many large messages are more than class memory keeps back."""


# A quota differs in what storage sees, not in the classes.
CASES = [(kind, storage) for kind in KINDS for storage in STORAGES if kind != "quota" or "fsync" not in storage]


@pytest.fixture(params=CASES, ids=" ".join)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    kind, storage = request.param
    disk = KINDS[kind](tmp_path, *STORAGES[storage])
    yield disk
    disk.close()
    disk.nsqd.assert_no_traceback()


def large(number: int) -> bytes:
    return b"%06d" % number * (LARGE // 6)


def publish_until_refused(nsqd: NsqdProcess, most: int) -> list[bytes]:
    """What was accepted."""
    accepted: list[bytes] = []
    while nsqd.http("POST", "/pub?topic=t", large(len(accepted))).status == 200:
        accepted.append(large(len(accepted)))
        assert len(accepted) < most, "nothing is refused"
    return accepted


def assert_refused(nsqd: NsqdProcess) -> None:
    """By every verb, and /ping says so."""
    for verb in ("PUB", "MPUB", "DPUB"):
        with nsqd.client() as producer:
            with pytest.raises(Refused, match=f"^E_{verb}_FAILED {verb} failed "):
                if verb == "PUB":
                    producer.pub("t", b"refused" * (LARGE // 7))
                elif verb == "MPUB":
                    producer.mpub("t", [b"refused" * (LARGE // 7)] * 2)
                else:
                    producer.dpub("t", 1, b"refused" * (LARGE // 7))
            assert producer.rest() == []
    for path in ("/pub?topic=t", "/mpub?topic=t", "/pub?topic=t&defer=1"):
        assert nsqd.http("POST", path, b"refused" * (LARGE // 7)).status == 503
    ping = nsqd.http("GET", "/ping")
    assert ping.status == 500 and ping.body.startswith(b"NOK - "), ping


def test_publishing_is_refused_and_goes_on_and_acknowledged_is_delivered(disk: Disk) -> None:
    nsqd = disk.nsqd
    nsqd.start()
    nsqd.create("t", "c", "later")
    accepted = [large(number) for number in range(1000, 1020)]
    nsqd.publish("t", accepted)
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=5)
        in_flight = consumer.take(5)
        disk.fill()
        accepted += publish_until_refused(nsqd, 100)
        assert_refused(nsqd)
        consumer.fin(in_flight)
        got = [message.body for message in in_flight + consumer.drain(len(accepted) - 5)]
        assert got == accepted
        nsqd.await_counts("t", "c", NOTHING)
        disk.free()
        # Nobody publishes.
        wait_until(lambda: nsqd.http("GET", "/ping") == Answer(200, b"OK"), "/ping says OK")
        nsqd.publish("t", [b"afterwards"])
        assert [message.body for message in consumer.drain(1)] == [b"afterwards"]
        nsqd.await_counts("t", "c", NOTHING)
        nsqd.store()
        nsqd.kill()
    nsqd.start()
    assert nsqd.counts("t", "c") == NOTHING
    later = [message.body for message in nsqd.drain("t", "later", len(accepted) + 1)]
    assert later == [*accepted, b"afterwards"]
    assert "are lost" not in nsqd.said()


@pytest.mark.parametrize("backend", ["disk", "sqlite"])
def test_class_memory_accepts_what_fits_into_its_window(tmp_path: Path, backend: str) -> None:
    """8 MB of it, which reach the disk when there is space."""
    disk = FaultyDisk(tmp_path, "EDQUOT", "--durability=memory", f"--backend={backend}")
    nsqd = disk.nsqd
    try:
        nsqd.start()
        nsqd.create("t", "c")
        disk.fill()
        accepted = publish_until_refused(nsqd, MANY)
        assert len(accepted) * LARGE > 7 << 20
        assert_refused(nsqd)
        disk.free()
        wait_until(lambda: nsqd.http("GET", "/ping") == Answer(200, b"OK"), "/ping says OK")
        nsqd.restart()
        assert [message.body for message in nsqd.drain("t", "c", len(accepted))] == accepted
    finally:
        disk.close()
    nsqd.assert_no_traceback()


@pytest.mark.parametrize("backend", ["disk", "sqlite"])
def test_positions_that_cannot_be_saved_cost_repeats_and_no_message(tmp_path: Path, backend: str) -> None:
    """
    Publishing and consuming go on; nothing is trimmed; a crash then repeats what was finished since. When there is
    space, the next cut has all of it.
    """
    flags = ("--max-bytes-per-file=400000", f"--backend={backend}")
    disk = FaultyDisk(tmp_path, "ENOSPC", *flags)
    nsqd = disk.nsqd
    published = [large(number) for number in range(30)]
    try:
        nsqd.start()
        nsqd.create("t", "c")
        nsqd.store()
        disk._nsqd.fail("write", "ENOSPC", "positions.db")
        nsqd.publish("t", published[:10])
        assert [message.body for message in nsqd.drain("t", "c", 10)] == published[:10]
        wait_until(lambda: "ERROR: NSQ: positions cannot be stored - positions.db: " in nsqd.said(), "the log says so")
        assert nsqd.http("GET", "/ping").status == 500
        nsqd.publish("t", published[10:20])
        nsqd.kill()
        disk.free()
        nsqd.start()
        again = nsqd.drain("t", "c", 20)
        assert [message.body for message in again] == published[:20]
        disk._nsqd.fail("write", "ENOSPC", "positions.db")
        nsqd.publish("t", published[20:])
        nsqd.drain("t", "c", 10)
        wait_until(lambda: nsqd.http("GET", "/ping").status == 500, "/ping says it")
        disk.free()
        wait_until(lambda: nsqd.http("GET", "/ping") == Answer(200, b"OK"), "/ping says OK")
        nsqd.store()
        nsqd.kill()
        nsqd.start()
        assert nsqd.counts("t", "c") == NOTHING
    finally:
        disk.close()
    nsqd.assert_no_traceback()


@pytest.mark.parametrize("is_filled_by_others", [False, True], ids=["alone", "others"])
@pytest.mark.parametrize("storage", ["os", "sqlite"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind == "mounted"])
def test_a_full_disk_heals_when_consumers_finish(
    tmp_path: Path, kind: str, storage: str, is_filled_by_others: bool
) -> None:
    """Everything is in the last file of each topic. Nobody frees space but the broker itself."""
    disk = KINDS[kind](tmp_path, *STORAGES[storage])
    nsqd = disk.nsqd
    try:
        nsqd.start()
        for topic in ("t", "small"):
            nsqd.create(topic, "c")
        nsqd.publish("small", [b"s" * 1000] * 20)
        accepted = publish_until_refused(nsqd, 1000)
        if is_filled_by_others:
            disk.fill()
        assert len(nsqd.drain("small", "c", 20)) == 20
        assert [message.body for message in nsqd.drain("t", "c", len(accepted))] == accepted
        wait_until(lambda: nsqd.http("GET", "/ping") == Answer(200, b"OK"), "/ping says OK")
        nsqd.publish("t", [b"afterwards"])
        assert [message.body for message in nsqd.drain("t", "c", 1)] == [b"afterwards"]
        assert "may not survive a power loss" not in nsqd.said()
        nsqd.store()
        nsqd.kill()
        nsqd.start()
        assert nsqd.counts("t", "c") == NOTHING
    finally:
        disk.close()
    nsqd.assert_no_traceback()

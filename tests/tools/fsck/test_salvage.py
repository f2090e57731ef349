"""
Damage in a batch, met by a real broker at its start and while it runs: what /stats and the log say of it, that the
depth of every channel is what it gets, and that everything can be finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqtw.backends.disk.format import BLOCK_BYTES, HEADER_BYTES
from tests.process import ForkedNsqd, NsqdProcess
from tests.tools.fsck.data_path import findings, whats

BODIES = [b"%04d" % number + b"x" * 200 for number in range(500)]
FRAME = 34 + len(BODIES[0])
PAGE = 4096


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    """A broker with two batches in its only file: `c` has read nothing, `d` has finished the first one."""
    nsqd = ForkedNsqd(tmp_path, "--durability=fsync", "--mem-queue-size=0")
    nsqd.start()
    nsqd.create("t", "c", "d")
    nsqd.http("POST", "/mpub?topic=t", b"\n".join(BODIES[:250]))
    nsqd.drain("t", "d", 250)
    nsqd.http("POST", "/mpub?topic=t", b"\n".join(BODIES[250:]))
    nsqd.store()
    nsqd.stop()
    yield nsqd
    nsqd.close()
    nsqd.assert_no_traceback()


def damage(nsqd: NsqdProcess, *places: int) -> bytes:
    """Overwrite pages, or flip the bit at a place that is no multiple of one. What the file is then."""
    (log,) = nsqd.data_path.glob("t/*.log")
    data = bytearray(log.read_bytes())
    for place in places:
        if place % PAGE:
            data[place] ^= 2
        else:
            data[place : place + PAGE] = bytes(PAGE)
    log.write_bytes(data)
    return bytes(data)


def stats(nsqd: NsqdProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(nsqd.http("GET", "/stats?format=json").body)
    return found


def said_of_damage(nsqd: NsqdProcess) -> list[str]:
    return [line for line in nsqd.said().splitlines() if " ERROR: " in line or " WARNING: " in line]


def test_a_flipped_bit_costs_the_messages_of_its_block(nsqd: NsqdProcess) -> None:
    content = damage(nsqd, 70_001)
    nsqd.start()
    lost = 500 - nsqd.counts("t", "c").depth
    assert 0 < lost <= BLOCK_BYTES // FRAME + 2
    (log,) = nsqd.data_path.glob("t/*.log")
    assert stats(nsqd)["damage"] == {
        "lost_count": lost,
        "damaged_count": lost,
        "set_aside_count": lost,
        "set_aside": [f"damaged.d/1/t/{log.name}"],
    }
    assert (nsqd.data_path / "damaged.d/1/t" / log.name).read_bytes() == content
    (line,) = said_of_damage(nsqd)
    assert f"{lost} lost, {250 - lost} of their messages kept" in line
    got = [message.body for message in nsqd.drain("t", "c", 500 - lost)]
    assert got == [body for body in BODIES if body in got] and BODIES[(70_001 - HEADER_BYTES) // FRAME - 1] not in got
    text = nsqd.http("GET", "/stats").body.decode()
    assert f"lost: {lost} damaged: {lost} set-aside: {lost}" in text
    assert f"set aside: damaged.d/1/t/{log.name}" in text
    assert findings(nsqd.data_path) == []


def test_a_damaged_positions_db_is_named_too(nsqd: NsqdProcess) -> None:
    for path in nsqd.data_path.glob("positions.db*"):
        path.unlink()
    (nsqd.data_path / "positions.db").write_bytes(b"something else " * 1000)
    nsqd.start()
    assert stats(nsqd)["damage"]["set_aside"] == ["positions.db.damaged.1"]


def test_depths_are_right_after_a_page_went_bad(nsqd: NsqdProcess) -> None:
    """A second start says nothing and delivers the same."""
    place = 20 * PAGE
    damage(nsqd, place)
    assert whats(findings(nsqd.data_path)) == ["damaged record", *["missing messages"] * 2]
    nsqd.start()
    depths = {name: nsqd.counts("t", name).depth for name in "cd"}
    lost = 500 - depths["c"]
    assert PAGE // FRAME <= lost <= 5 * PAGE // FRAME + 2
    assert depths["d"] == 250 - lost
    (line,) = said_of_damage(nsqd)
    assert f"{lost} lost, {250 - lost} of their messages kept" in line
    found = stats(nsqd)
    assert (found["damage"]["lost_count"], found["damage"]["set_aside_count"]) == (lost, lost)
    assert nsqd.stats("t")[0]["lost_count"] == lost
    nsqd.stop()
    nsqd.start()
    assert said_of_damage(nsqd) == [line]
    assert {name: nsqd.counts("t", name).depth for name in "cd"} == depths
    first_lost = (place - HEADER_BYTES) // FRAME
    got = [message.body for message in nsqd.drain("t", "c", depths["c"])]
    assert got == sorted(got) and {*got} < {*BODIES}
    assert BODIES[first_lost] not in got and BODIES[first_lost - 5 * PAGE // FRAME - 3] in got
    assert [message.body for message in nsqd.drain("t", "d", depths["d"])] == [
        body for body in got if body > BODIES[249]
    ]


def test_damage_met_while_the_broker_runs(nsqd: NsqdProcess) -> None:
    """The other channel's depth falls with the message; the file is rewritten when it does not grow any more."""
    nsqd.start()
    content = damage(nsqd, 20 * PAGE)
    # A read comes by when a replay asks for what is there.
    answer = nsqd.http("GET", "/v2/topic/log?topic=t&from=earliest&limit=1048576")
    assert answer.status == 200, answer
    depth = nsqd.counts("t", "c").depth
    lost = 500 - depth
    assert 0 < lost <= 5 * PAGE // FRAME + 2
    assert nsqd.counts("t", "d").depth == 250 - lost
    assert len([line for line in said_of_damage(nsqd) if "the checksum of the frames is wrong" in line]) == 1
    assert len(nsqd.drain("t", "d", 250 - lost)) == 250 - lost
    nsqd.stop()
    (kept,) = nsqd.data_path.glob("damaged.d/1/t/*.log")
    assert kept.read_bytes() == content
    said = said_of_damage(nsqd)
    nsqd.start()
    assert said_of_damage(nsqd) == said
    assert nsqd.counts("t", "c").depth == depth
    assert len(nsqd.drain("t", "c", depth)) == depth

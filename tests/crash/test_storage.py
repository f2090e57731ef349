"""Files that a crash tore, that went bad, or that cannot grow."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nsqtw.backends.disk.format import HEADER_BYTES, RECORD_BYTES
from nsqtw.core.segment import BODY_AT
from tests.process import NOTHING, Counts, NsqdProcess, wait_until
from tests.wire import Client, Message, Refused

BODIES = [b"%05d" % number for number in range(100)]
RECORD = RECORD_BYTES + BODY_AT + len(BODIES[0])


def bodies_of(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


def newest_log(nsqd: NsqdProcess) -> Path:
    return max((nsqd.data_path / "t").glob("*.log"))


@pytest.fixture
def killed(nsqd: NsqdProcess) -> NsqdProcess:
    """With a log of BODIES, a record each, for the channels `c` and `read`, which has finished all of it."""
    nsqd.create("t", "c", "read")
    nsqd.publish("t", BODIES)
    nsqd.drain("t", "read", len(BODIES))
    nsqd.store()
    nsqd.kill()
    return nsqd


def test_a_torn_tail_costs_what_was_torn_off_and_no_more(killed: NsqdProcess) -> None:
    nsqd = killed
    whole = nsqd.data_path.with_name("whole")
    shutil.copytree(nsqd.data_path, whole)
    size = newest_log(nsqd).stat().st_size
    for torn in (1, RECORD, 10 * RECORD - 1, size - HEADER_BYTES, size - 1):
        shutil.rmtree(nsqd.data_path)
        shutil.copytree(whole, nsqd.data_path)
        os.truncate(newest_log(nsqd), size - torn)
        left = BODIES[: max(0, size - torn - HEADER_BYTES) // RECORD]
        nsqd.start()
        assert (nsqd.counts("t", "c"), nsqd.counts("t", "read")) == (Counts(len(left), 0, 0), NOTHING)
        nsqd.publish("t", [b"afterwards"])
        assert bodies_of(nsqd.drain("t", "c", len(left) + 1)) == [*left, b"afterwards"]
        assert bodies_of(nsqd.drain("t", "read", 1)) == [b"afterwards"]
        nsqd.kill()


def test_a_damaged_record_is_reported_and_costs_itself(killed: NsqdProcess) -> None:
    nsqd = killed
    log = newest_log(nsqd)
    content = bytearray(log.read_bytes())
    content[HEADER_BYTES + 51 * RECORD - 1] ^= 0x5B
    log.write_bytes(content)
    nsqd.start()
    assert bodies_of(nsqd.drain("t", "c", len(BODIES) - 1)) == BODIES[:50] + BODIES[51:]
    (line,) = [line for line in nsqd.said().splitlines() if "are lost" in line]
    assert " ERROR: TOPIC(t): messages " in line and f" in {log} are lost: damaged records: 1 lost" in line


PUBLISHES: dict[str, Callable[[Client, bytes], None]] = {
    "PUB": lambda client, body: client.pub("t", body),
    "MPUB": lambda client, body: client.mpub("t", [body, body]),
    "DPUB": lambda client, body: client.dpub("t", 1000, body),
}


def assert_publishes_are_refused(nsqd: NsqdProcess, body: bytes) -> None:
    for verb, publish in PUBLISHES.items():
        with nsqd.client() as producer:
            with pytest.raises(Refused, match=f"^E_{verb}_FAILED {verb} failed write of topic t: file too large$"):
                publish(producer, body)
            assert producer.rest() == []
    assert nsqd.http("POST", "/pub?topic=t", body).status == 503
    assert nsqd.http("POST", "/mpub?topic=t", body).status == 503

    def is_said() -> bool:
        # Another file of that size could be written: /ping forgives what only this log refuses.
        assert nsqd.http("POST", "/pub?topic=t", body).status == 503
        return nsqd.http("GET", "/ping") == (500, b"NOK - write of topic t: file too large")

    wait_until(is_said, "/ping says so after a refusal")


def test_a_log_that_cannot_grow_refuses_and_heals_and_loses_nothing(nsqd: NsqdProcess) -> None:
    """What is refused is never delivered, not even after a kill; what is there is delivered all the time."""
    large = [body * 20_000 for body in BODIES[:7]]
    nsqd.create("t", "meanwhile", "later")
    nsqd.publish("t", large[:5])
    nsqd.limit_files(newest_log(nsqd).stat().st_size + len(large[5]) + RECORD)
    nsqd.publish("t", large[5:6])
    assert_publishes_are_refused(nsqd, b"r" * len(large[0]))
    assert bodies_of(nsqd.drain("t", "meanwhile", 6)) == large[:6]
    nsqd.limit_files(None)
    nsqd.publish("t", large[6:])
    assert nsqd.http("GET", "/ping") == (200, b"OK")
    nsqd.store()
    nsqd.kill()
    nsqd.start()
    assert bodies_of(nsqd.drain("t", "meanwhile", 1)) == large[6:]
    assert bodies_of(nsqd.drain("t", "later", 7)) == large


def test_a_failed_write_is_said_in_the_log(nsqd: NsqdProcess) -> None:
    """Whoever looks for the reason of the publishers' errors finds it."""
    nsqd.create("t", "c")
    large = BODIES[0] * 20_000
    nsqd.publish("t", [large])
    nsqd.limit_files(newest_log(nsqd).stat().st_size + RECORD)
    assert nsqd.http("POST", "/pub?topic=t", large).status == 503
    assert [line for line in nsqd.said().splitlines() if " ERROR: " in line and "file too large" in line]


def test_a_disk_without_a_byte_left_refuses_all_that_must_be_stored(nsqd: NsqdProcess) -> None:
    """Neither log nor positions nor stderr can be written. Consumers are served on, and all heals by itself."""
    nsqd.create("t", "c")
    nsqd.publish("t", BODIES)
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=10)
        consumer.fin(consumer.take(10))
        nsqd.limit_files(0)
        assert_publishes_are_refused(nsqd, b"refused")
        for path in ("/topic/create?topic=new", "/channel/create?topic=t&channel=new"):
            assert nsqd.http("POST", path).status == 500
        with nsqd.client() as newcomer:
            with pytest.raises(Refused, match=r"^E_SUB_FAILED SUB failed positions.db: "):
                newcomer.sub("t", "newer")
            assert newcomer.rest() == []
        assert bodies_of(consumer.drain(80)) == BODIES[10:90]
        nsqd.limit_files(None)
        nsqd.publish("t", [b"accepted"])
        wait_until(lambda: nsqd.http("GET", "/ping").status == 200, "/ping says OK")
        assert bodies_of(consumer.drain(11)) == [*BODIES[90:], b"accepted"]
    nsqd.await_counts("t", "c", NOTHING)
    nsqd.store()
    nsqd.kill()
    nsqd.start()
    assert nsqd.counts("t", "c") == NOTHING

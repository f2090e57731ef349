"""
Calls that fail once, before a death: what lies in the log is delivered by the next start down to the last message, in
every channel, without a further publish, whatever failed and whichever counts were saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.failing_calls import MESSAGES, SYNC, FailingNsqd, Fault, faults_of
from tests.process import NOTHING, wait_until
from tests.wire import Client, Refused

CHANNELS = ("early", "late")
CLASSES = ("memory", "os", "fsync")


class Broker(FailingNsqd):
    """With a topic of each class."""

    def __init__(self, directory: Path, backend: str) -> None:
        super().__init__(directory, f"--backend={backend}", f"--config={config_in(directory)}")
        self.backend = backend


@pytest.fixture(params=MESSAGES)
def nsqd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with closing(Broker(tmp_path, request.param)) as nsqd:
        nsqd.start()
        yield nsqd
    nsqd.assert_no_traceback()
    # Class memory promises nothing else when the process is killed.
    assert not [line for line in nsqd.said().splitlines() if " lost" in line and "TOPIC(memory)" not in line]


def config_in(directory: Path) -> Path:
    """Topics are called after their classes."""
    config = directory / "nsqd.cfg"
    config.write_text("".join(f'[topic."{name}"]\ndurability = "{name}"\n' for name in CLASSES))
    return config


def publish(nsqd: Broker, topic: str, bodies: list[bytes]) -> list[bytes]:
    """One PUB each. Which were answered with OK."""
    good = []
    client: Client | None = None
    for body in bodies:
        client = client or nsqd.client()
        try:
            client.pub(topic, body)
        except Refused:
            client.close()
            client = None
        else:
            good.append(body)
    if client is not None:
        client.close()
    return good


def assert_all_is_delivered(nsqd: Broker, topic: str, good: list[bytes], refused: set[bytes]) -> None:
    """
    To every channel the same, in order: what was answered with OK, and of the refused ones those that are in the log.
    The counts of the start are those of what comes.
    """
    found = []
    for channel in CHANNELS:
        count = nsqd.counts(topic, channel).depth
        with nsqd.client() as consumer:
            consumer.sub(topic, channel, ready=500)
            messages = consumer.drain(count)
            consumer.cls()
        assert nsqd.counts(topic, channel) == NOTHING
        found.append([message.body for message in messages])
    assert found[0] == found[1]
    assert [body for body in found[0] if body not in refused] == good
    assert set(found[0]) <= refused.union(good)


def test_the_fifth_sync_fails_and_the_last_message_is_delivered(nsqd: Broker) -> None:
    nsqd.create("fsync", *CHANNELS)
    nsqd.store()
    bodies = [b"%d" % number for number in range(10)]
    good = publish(nsqd, "fsync", bodies[:4])
    nsqd.calls.meet(Fault(SYNC, "EIO", MESSAGES[nsqd.backend]))
    good += publish(nsqd, "fsync", bodies[4:])
    assert good == bodies[:4] + bodies[5:]
    assert nsqd.calls.hits == 1
    nsqd.store()
    nsqd.kill()
    nsqd.start()
    assert_all_is_delivered(nsqd, "fsync", good, {bodies[4]})


@pytest.mark.parametrize("dies", ["kill", "stop"])
def test_nothing_is_stranded_whatever_call_fails_once(nsqd: Broker, dies: str) -> None:
    for topic in CLASSES:
        nsqd.create(topic, *CHANNELS)
    serial = hits = 0
    for fault in faults_of(nsqd.backend):
        good: dict[str, list[bytes]] = {}
        sent: dict[str, list[bytes]] = {}
        nsqd.calls.meet(fault)
        for topic in CLASSES:
            sent[topic] = [b"%d" % (serial + number) for number in range(6)]
            serial += 6
            good[topic] = publish(nsqd, topic, sent[topic])
        # Whether it is refused is not what this is about.
        nsqd.http("POST", f"/topic/create?topic=named{serial}")
        if dies == "kill":
            if fault.path != "nsqd.dat":  # this is written a moment later
                nsqd.calls.heal()
            wait_until(lambda before=hits: nsqd.calls.hits > before, f"{fault} is met")  # type: ignore[misc]
            nsqd.calls.heal()
            nsqd.store()
            nsqd.kill()
        else:
            nsqd.stop()
            nsqd.calls.heal()
        assert nsqd.calls.hits > hits, fault
        hits = nsqd.calls.hits
        nsqd.start()
        for topic in CLASSES:
            is_kept = dies == "stop" or topic != "memory"
            kept = good[topic] if is_kept else []
            assert_all_is_delivered(nsqd, topic, kept, set(sent[topic]) - set(kept))

"""
What clients that others wrote have to do, whichever it is.

Subscribe to both channels of a topic; publish SINGLES one by one, MULTIPLE at once and LATER with a delay; consume
all of it, touching each message, giving back what `wants_again` says and finishing the rest; then wait until every
connection has had a heartbeat, and publish and consume LAST.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Certificates
from tests.process import NOTHING, NsqdProcess

TOPIC = "of-clients"
CHANNELS = ("plain", "picky")
SINGLES = [b"one", b"\x00\xff\r\n", b"x" * 100_000]
MULTIPLE = [b"many %d" % number for number in range(20)]
LATER = b"later"
LATER_MS = 50
LAST = b"after the heartbeats"
ALL = [*SINGLES, *MULTIPLE, LATER, LAST]
HEARTBEAT_SECONDS = 1
"""As short as may be negotiated."""

UPGRADES: dict[str, dict[str, bool]] = {
    "plain": {},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True},
    "tls": {"tls_v1": True},
    "tls-snappy": {"tls_v1": True, "snappy": True},
    "tls-deflate": {"tls_v1": True, "deflate": True},
}
"""What a client may ask for when it identifies itself, by what the tests call it."""

Deliveries = dict[str, list[tuple[bytes, int]]]
"""By channel: body and attempts of every message, each time it came."""

DELIVERED: Deliveries = {
    "plain": [(body, 1) for body in ALL],
    "picky": [(body, 1) for body in ALL] + [(body, 2) for body in MULTIPLE],
}


def wants_again(channel: str, body: bytes, attempts: int) -> bool:
    """Whether a consumer requeues this."""
    return channel == "picky" and body in MULTIPLE and attempts == 1


def assert_all_is_done(nsqd: NsqdProcess, delivered: Deliveries, upgrade: str) -> None:
    """Everything came as often as it should, through what was asked for, and the broker sees it so too."""
    for layer, line in (("tls", "TLS"), ("snappy", "snappy"), ("deflate", "deflate (level 6)")):
        upgraded = nsqd.said().count(f"upgrading connection to {line}\n")
        assert upgraded == (1 + len(CHANNELS) if layer in upgrade.split("-") else 0)
    assert {channel: sorted(those) for channel, those in delivered.items()} == {
        channel: sorted(those) for channel, those in DELIVERED.items()
    }
    for channel in CHANNELS:
        nsqd.await_counts(TOPIC, channel, NOTHING)
    (topic,) = nsqd.stats(TOPIC)
    assert topic["message_count"] == len(ALL)
    requeued = {channel["channel_name"]: channel["requeue_count"] for channel in topic["channels"]}
    assert requeued == {"plain": 0, "picky": len(MULTIPLE)}


@pytest.fixture(params=UPGRADES)
def upgrade(request: pytest.FixtureRequest) -> str:
    """Each of them."""
    return str(request.param)


@pytest.fixture
def nsqd(tmp_path: Path, certificates: Certificates) -> Iterator[NsqdProcess]:
    """A broker with the topic and the channels, which must stop cleanly after all that was done with it."""
    process = NsqdProcess(tmp_path, *certificates.server.flags(), "--https-address=")
    try:
        process.start()
        process.create(TOPIC, *CHANNELS)
        yield process
        process.stop()
    finally:
        process.close()

"""The policies that docs/how-to/limits.md shows do what it says, and it quotes the broker as it is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nsqtw.core.channel import Channel
from nsqtw.core.segment import BODY_AT
from nsqtw.errors import InvalidPolicy, LargerThanBound, Overflow
from nsqtw.options.settings import ChannelPolicy, read_policy
from tests.core.harness import BrokerHarness
from tests.http.broker_fixture import Web

PAGE = (Path(__file__).parent.parent / "docs/how-to/limits.md").read_text("utf-8")


def tables() -> dict[str, dict[str, Any]]:
    """The tables of the page by their patterns."""
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return {pattern: read_policy(ChannelPolicy, table) for pattern, table in tomllib.loads(text)["channel"].items()}


def channel(core: BrokerHarness, pattern: str) -> Channel:
    """A channel with the policy of a table."""
    found = core.channel("billing", "t")
    found.policies.set(tables()[pattern])
    return found


def test_the_rate_of_the_page() -> None:
    core = BrokerHarness()
    channel(core, "orders/billing")
    core.put(*[b"x"] * 250)
    reader = core.reader("billing", ready=2500)
    assert len(reader.read()) == 100
    core.wait(1)
    assert len(reader.read()) == 100


def test_the_delays_of_the_page() -> None:
    delays = channel(BrokerHarness(), "orders/*").requeue_delay
    assert delays is not None
    delays._random = lambda: 0.5
    assert [delays.due(attempts, 0.0) for attempts in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert "1, 2, 4, 8" in PAGE
    assert delays.due(100, 0.0) == 900
    assert ChannelPolicy().max_requeue_delay == 900


def test_bytes_of_the_channel_of_the_page_that_drops() -> None:
    core = BrokerHarness()
    bounded = channel(core, "clicks/*")
    table = tables()["clicks/*"]
    bounded.policies.set({**table, "max_bytes": table["max_bytes"] // 2**20})  # a thousandth is enough to see
    core.put(*[b"x" * (256 - BODY_AT)] * 6)
    core.turn()
    assert (bounded.depth, bounded.dropped_count) == (4, 2)


def test_the_channel_of_the_page_that_drops() -> None:
    core = BrokerHarness()
    bounded = channel(core, "clicks/*")
    core.put(b"x" * 1000)
    core.turn()
    core.wait(86_400)
    assert (bounded.depth, bounded.dropped_count) == (0, 1)
    assert bounded.policy.max_bytes == 2**30
    assert f"{BODY_AT} bytes for each message" in PAGE


def test_the_channel_of_the_page_that_refuses_and_the_answers() -> None:
    web = Web()
    bounded = channel(web.core, "payments/*")
    assert bounded.policy.overflow == "reject"
    bounded.policies.set({"max_depth": 1})
    web.post("/pub?topic=t", b"1")
    reply = web.post("/pub?topic=t", b"2")
    shown = re.search(r"status (\d+), `(.*?)`, `Retry-After: (\d+)`", PAGE)
    assert shown is not None
    assert shown.groups() == (str(reply.status), reply.body.decode(), reply.headers["retry-after"])
    assert f"PUB failed {Overflow('billing', 'max_depth')}" in PAGE


def test_the_answer_to_a_publish_that_never_fits() -> None:
    web = Web()
    channel(web.core, "payments/*").policies.set({"max_depth": 3})
    reply = web.post("/mpub?topic=t", b"\n".join([b"x"] * 10))
    shown = re.search(r"status (\d+), `([^`]*)` without `Retry-After`", " ".join(PAGE.split()))
    assert shown is not None
    assert shown.groups() == (str(reply.status), reply.body.decode())
    assert f"MPUB failed {LargerThanBound('billing', 'max_depth', '10 messages', 3)}" in " ".join(PAGE.split())
    assert reply.headers["x-nsqtw-detail"].startswith("10 messages exceed the max_depth of channel ")


def test_the_ephemeral_channel_of_the_page() -> None:
    with pytest.raises(InvalidPolicy):
        BrokerHarness().channel("c#ephemeral").policies.set(tables()["payments/*"])

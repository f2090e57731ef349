"""How long a topic keeps what is finished: set over HTTP, shown in /stats, and kept."""

from __future__ import annotations

import pytest

from tests.http.broker_fixture import DONE, Web


def shown(web: Web) -> dict[str, int] | None:
    found: dict[str, int] | None = web.get("/stats?format=json").json["topics"][0].get("retention")
    return found and {name: found[name] for name in ("time_ms", "bytes")}


def give(web: Web, query: str, topic: str = "t") -> tuple[int, str]:
    return web.post(f"/v2/topic/retention?topic={topic}&{query}").outcome


def test_time_and_bytes_are_given_apart_and_together() -> None:
    web = Web(retention_bytes=7)
    web.post("/topic/create?topic=t")
    assert shown(web) == {"time_ms": 0, "bytes": 7}
    assert give(web, "time=1h30m") == DONE
    assert shown(web) == {"time_ms": 5_400_000, "bytes": 7}
    assert give(web, "time=0&bytes=0") == DONE
    assert shown(web) is None, "nsqd's own document, where nothing is special"
    assert give(web, "bytes=5000") == DONE
    web.crash()
    assert shown(web) == {"time_ms": 0, "bytes": 5000}
    assert give(web, "time=default&bytes=default") == DONE
    assert shown(web) == {"time_ms": 0, "bytes": 7}


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("topic=t", (400, "MISSING_ARG_TIME_OR_BYTES")),
        ("time=1h", (400, "MISSING_ARG_TOPIC")),
        ("topic=unknown&time=1h", (404, "TOPIC_NOT_FOUND")),
        ("topic=e%23ephemeral&time=1h", (400, "EPHEMERAL_TOPIC")),
        ("topic=t&time=1y", (400, "INVALID_TIME")),
        ("topic=t&time=-1h", (400, "INVALID_TIME")),
        ("topic=t&time=1h&bytes=1G", (400, "INVALID_BYTES")),
    ],
)
def test_refusals(query: str, outcome: tuple[int, str]) -> None:
    web = Web()
    for topic in ("t", "e%23ephemeral"):
        web.post(f"/topic/create?topic={topic}")
    assert web.post(f"/v2/topic/retention?{query}").outcome == outcome
    assert shown(web) is None

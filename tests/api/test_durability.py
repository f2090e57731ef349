"""The durability class of a topic: set over HTTP, shown in /stats and with each publish, and kept."""

from __future__ import annotations

import pytest

from tests.http.broker_fixture import DONE, OK, Web

pytestmark = pytest.mark.usefixtures("heads")

HEADER = "x-nsqtw-durability"


def set_class(web: Web, word: str, topic: str = "t") -> tuple[int, str]:
    return web.ask("POST", f"/v2/topic/durability?topic={topic}&class={word}").outcome


def shown(web: Web) -> object:
    return web.ask("GET", "/stats?format=json").json["topics"][0].get("durability")


def test_a_topic_gets_another_class_and_the_one_of_the_options_back() -> None:
    web = Web()
    assert web.ask("POST", "/pub?topic=t", b"a").headers[HEADER] == "os"
    assert shown(web) is None, "nsqd's own document, where nothing is special"
    for word in ("fsync", "memory"):
        assert set_class(web, word) == DONE
        assert shown(web) == word
        for path in ("/pub", "/mpub"):
            reply = web.ask("POST", f"{path}?topic=t", b"a")
            assert (reply.outcome, reply.headers[HEADER]) == (OK, word)
    assert set_class(web, "default") == DONE
    assert shown(web) is None


def test_an_ephemeral_topic_is_in_memory_only() -> None:
    assert Web().ask("POST", "/pub?topic=t%23ephemeral", b"a").headers[HEADER] == "memory"


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("", (400, "MISSING_ARG_TOPIC")),
        ("topic=unknown&class=os", (404, "TOPIC_NOT_FOUND")),
        ("topic=t", (400, "INVALID_CLASS")),
        ("topic=t&class=disk", (400, "INVALID_CLASS")),
    ],
)
def test_refusals(query: str, outcome: tuple[int, str]) -> None:
    web = Web()
    web.ask("POST", "/topic/create?topic=t")
    assert web.ask("POST", f"/v2/topic/durability?{query}").outcome == outcome

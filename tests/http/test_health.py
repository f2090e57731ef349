"""/livez and /readyz, as a broker serves them."""

from __future__ import annotations

from nsqtw.daemon.readiness import Readiness
from tests.http.broker_fixture import OK, Web


def not_ready(web: Web) -> Readiness:
    """The checks of the broker, one of which fails."""
    readiness = web.readiness
    readiness.add("recovered", lambda: "")
    readiness.add("disk", lambda: "NOK - no space")
    return readiness


def test_livez_answers_whatever_the_checks_say() -> None:
    web = Web()
    not_ready(web)
    assert web.get("/livez").outcome == OK


def test_readyz_names_the_checks() -> None:
    web = Web()
    web.readiness.add("disk", lambda: "")
    reply = web.get("/readyz")
    assert (reply.status, reply.json) == (200, {"ready": True, "checks": ["disk"], "reasons": {}})


def test_readyz_has_a_reason_for_each_check_that_fails() -> None:
    web = Web()
    not_ready(web)
    reply = web.get("/readyz")
    reasons = {"disk": "NOK - no space"}
    assert reply.status == 503
    assert reply.json == {"ready": False, "checks": ["recovered", "disk"], "reasons": reasons}


def test_ping_does_not_depend_on_the_checks() -> None:
    web = Web()
    not_ready(web)
    assert web.get("/ping").outcome == OK

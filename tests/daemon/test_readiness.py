"""The named checks of a daemon."""

from __future__ import annotations

from twisted.logger import LogEvent

from nsqtw.daemon.readiness import FAILED, Readiness


def test_a_daemon_without_checks_is_ready() -> None:
    assert Readiness().reasons() == {}


def test_each_check_that_does_not_pass_says_why() -> None:
    disk = [""]
    readiness = Readiness()
    readiness.add("recovered", lambda: "")
    readiness.add("disk", lambda: disk[0])
    assert readiness.reasons() == {}
    disk[0] = "no space"
    assert (readiness.names, readiness.reasons()) == (["recovered", "disk"], {"disk": "no space"})


def test_a_check_of_the_same_name_replaces_the_one_before() -> None:
    readiness = Readiness()
    readiness.add("draining", lambda: "before")
    readiness.add("draining", lambda: "after")
    assert readiness.reasons() == {"draining": "after"}


def test_a_check_that_raises_does_not_pass_and_is_logged(logged_failures: list[LogEvent]) -> None:
    readiness = Readiness()
    readiness.add("disk", lambda: str(1 // 0))
    readiness.add("lookupd", lambda: "")
    assert readiness.reasons() == {"disk": FAILED}
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()

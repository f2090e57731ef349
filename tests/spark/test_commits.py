"""One line of JSON for what a job has published."""

import json
import logging
from collections import Counter

import pytest
from pyspark_nsq.http.causes import Cause
from pyspark_nsq.sink.commits import NsqCommit, tell_sum

DONE = [
    NsqCommit(
        partition=0, attempt=0, rows=10, requests=2, body_bytes=500, waited_ms=1.4, retries=Counter([Cause.BUSY])
    ),
    None,
    NsqCommit(
        partition=2,
        attempt=1,
        rows=5,
        requests=1,
        body_bytes=100,
        waited_ms=3.3,
        retries=Counter([Cause.LOST, Cause.BUSY]),
    ),
]


def test_the_sum_of_the_tasks(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO, "pyspark_nsq"):
        tell_sum("published", 7, DONE, show=False)
    expected = {"event": "published", "batch": 7, "rows": 15, "requests": 3, "bytes": 600, "waitedMs": 5, "tasks": 2}
    causes = {"429": 2, "5xx": 0, "Timeout": 0, "Refused": 0, "Lost": 1}
    expected |= {"retried": 3} | {f"retried{cause}": count for cause, count in causes.items()}
    [line] = caplog.messages
    assert expected == json.loads(line)
    assert capfd.readouterr().err == ""


def test_shown(capfd: pytest.CaptureFixture[str]) -> None:
    tell_sum("failed", None, DONE, show=True)
    line = json.loads(capfd.readouterr().err)
    assert (line["event"], line["batch"], line["rows"]) == ("failed", None, 15)

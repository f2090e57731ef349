"""Requests that wait for their turn, because servers do not answer."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from nsqtw.cluster import http
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.http import CHANGES, QUERIES, SAMPLES, Timeouts
from nsqtw.cluster.model import Partial
from nsqtw.errors import NoServerAnswered
from tests.cluster.answering import answer, server
from tests.cluster.reactor import run
from tests.wire import ANSWER_SECONDS


@pytest.fixture(autouse=True)
def one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TURNS", {CHANGES: 1, QUERIES: 1, SAMPLES: 1})


def stats(head: str) -> bytes:
    return answer({"version": "1.3.0", "broadcast_address": "a", "http_port": 1, "hostname": "h", "topics": []})


def test_samples_queries_and_changes_do_not_wait_for_each_other() -> None:
    with server(lambda head: None) as (silent, _), server(stats) as (good, _):

        async def test(reactor: Any) -> tuple[Any, Any]:
            cluster = Cluster(reactor, nsqds=[silent], timeouts=Timeouts(ANSWER_SECONDS, ANSWER_SECONDS))
            sample = Deferred.fromCoroutine(cluster.stats())
            cluster.nsqds = [good]
            found: tuple[Any, Any] = await cluster.topics(), await cluster.create("t")
            assert not sample.called
            sample.addErrback(lambda failure: None)
            sample.cancel()
            await cluster.close()
            return found

        topics, created = run(test)
    assert topics == Partial(())
    assert created.value == (good,)


def test_the_wait_for_a_turn_counts_into_the_time_for_an_answer() -> None:
    with server(lambda head: None) as (first, _), server(stats) as (second, heads):

        async def test(reactor: Any) -> None:
            cluster = Cluster(reactor, nsqds=[first, second], timeouts=Timeouts(ANSWER_SECONDS, 0.2))
            try:
                await cluster.topics()
            finally:
                await cluster.close()

        with pytest.raises(NoServerAnswered) as caught:
            run(test)
    assert f'Get "http://{first}/stats": no answer within 0.2s' in str(caught.value)
    assert f'Get "http://{second}/stats": not asked within 0.2s, because others do not answer' in str(caught.value)
    assert heads == []


def test_a_server_that_did_not_answer_takes_no_turn_of_others() -> None:
    silent_at_first = Timeouts(ANSWER_SECONDS, 0.2)
    with server(lambda head: None) as (silent, heads), server(stats) as (good, _):

        async def test(reactor: Any) -> Any:
            cluster = Cluster(reactor, nsqds=[silent], timeouts=silent_at_first)
            with pytest.raises(NoServerAnswered):
                await cluster.topics()
            cluster.requests.timeouts = Timeouts(ANSWER_SECONDS, ANSWER_SECONDS)
            waiting = Deferred.fromCoroutine(cluster.topics())
            cluster.nsqds = [good]
            found = await cluster.topics()
            assert not waiting.called
            waiting.addErrback(lambda failure: None)
            waiting.cancel()
            await cluster.close()
            return found

        assert run(test) == Partial(())
    assert heads

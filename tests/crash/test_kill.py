"""SIGKILL, SIGTERM and what is there afterwards."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.process import NOTHING, Counts, NsqdProcess
from tests.wire import Message

CLOCK_SLACK_SECONDS = 0.01
"""Due times are kept in whole milliseconds of the wall clock."""

Death = Callable[[NsqdProcess], None]
DEATHS = [NsqdProcess.kill, NsqdProcess.stop]


def bodies_of(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


def numbered(count: int) -> list[bytes]:
    return [b"%05d" % number for number in range(count)]


def test_all_that_was_answered_comes_back_also_what_was_in_flight(keeping: NsqdProcess) -> None:
    """Killed twice: at once after the deliveries, and when they are saved."""
    keeping.create("t", "c")
    published = numbered(5000)
    keeping.publish("t", published)
    for saved in (False, True):
        with keeping.client() as consumer:
            consumer.sub("t", "c", ready=200)
            in_flight = {message.body: message.attempts for message in consumer.take(200)}
            assert keeping.counts("t", "c") == Counts(4800, 200, 0)
            if saved:
                keeping.store()
            keeping.kill()
        keeping.start()
        assert keeping.counts("t", "c") == Counts(5000, 0, 0)
    received = keeping.drain("t", "c", 5000)
    assert sorted(bodies_of(received)) == published
    for message in received:
        assert message.attempts in ([in_flight[message.body] + 1] if message.body in in_flight else [1, 2])
    assert "are lost" not in keeping.said()


def test_a_topic_keeps_its_messages_for_the_first_channel_over_a_kill(keeping: NsqdProcess) -> None:
    keeping.publish("t", numbered(100))
    keeping.kill()
    keeping.start()
    assert keeping.stats("t")[0]["depth"] == 100
    assert bodies_of(keeping.drain("t", "c", 100)) == numbered(100)


def test_what_was_finished_and_stored_does_not_come_back(nsqd: NsqdProcess) -> None:
    """What was finished just before the kill may; and what one channel finished is still the other's."""
    nsqd.create("t", "a", "b")
    published = numbered(1000)
    nsqd.publish("t", published)
    with nsqd.client() as consumer:
        consumer.sub("t", "a", ready=500)
        early, late = consumer.take(300), consumer.take(100)
        consumer.fin(early)
        consumer.cls()
        nsqd.store()
        consumer.fin(late)
        nsqd.kill()
    nsqd.start()
    depth = nsqd.counts("t", "a").depth
    assert 600 <= depth <= 700
    received = bodies_of(nsqd.drain("t", "a", depth))
    assert len(set(received)) == depth
    unfinished = set(published) - set(bodies_of(early))
    assert unfinished - set(bodies_of(late)) <= set(received) <= unfinished
    assert sorted(bodies_of(nsqd.drain("t", "b", 1000))) == published


@pytest.mark.parametrize("die", DEATHS)
def test_deferred_messages_wait_on_and_are_not_early(keeping: NsqdProcess, die: Death) -> None:
    """Published with a delay, or requeued with one: both keep their time."""
    keeping.create("t", "c")
    with keeping.client() as client:
        client.sub("t", "c", ready=10)
        client.pub("t", b"requeued")
        client.pub("t", b"requeued for an hour")
        messages = {message.body: message for message in client.take(2)}
        since = {b"requeued": time.monotonic()}
        client.req(messages[b"requeued"], 2000)
        client.req(messages[b"requeued for an hour"], 3_600_000)
        client.cls()
        keeping.store()
        since[b"published"] = time.monotonic()
        client.dpub("t", 2000, b"published")
        client.dpub("t", 3_600_000, b"published for an hour")
        die(keeping)
    keeping.start()
    with keeping.client() as consumer:
        consumer.sub("t", "c", ready=10)
        for _ in range(2):
            (message,) = consumer.drain(1)
            assert time.monotonic() >= since.pop(message.body) + 2 - CLOCK_SLACK_SECONDS
            assert message.attempts == (2 if message.body == b"requeued" else 1)
    assert not since
    keeping.await_counts("t", "c", Counts(0, 0, 2))


def test_attempts_are_counted_on_after_a_kill(nsqd: NsqdProcess) -> None:
    nsqd.create("t", "c")
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=1)
        consumer.pub("t", b"again and again")
        for attempts in range(1, 6):
            message = consumer.message()
            assert message.attempts == attempts
            consumer.req(message, 0)
        assert consumer.message().attempts == 6
        nsqd.store()
        nsqd.kill()
    nsqd.start()
    assert [message.attempts for message in nsqd.drain("t", "c", 1)] == [7]


@pytest.mark.parametrize("die", DEATHS)
def test_topics_channels_and_pauses_are_there_again(nsqd: NsqdProcess, die: Death) -> None:
    nsqd.create("bare")
    nsqd.create("paused", "in-paused")
    nsqd.order("/topic/pause?topic=paused")
    nsqd.create("t", "flowing", "halted", "resumed", "deleted", "fleeting#ephemeral")
    nsqd.order("/channel/pause?topic=t&channel=halted")
    nsqd.order("/channel/pause?topic=t&channel=resumed")
    nsqd.order("/channel/unpause?topic=t&channel=resumed")
    nsqd.order("/channel/delete?topic=t&channel=deleted")
    nsqd.create("gone", "c")
    nsqd.order("/topic/delete?topic=gone")
    nsqd.create("fleeting#ephemeral")
    with nsqd.client() as consumer:
        consumer.sub("subscribed", "c")
        die(nsqd)
    nsqd.start()
    found = {
        topic["topic_name"]: (
            topic["paused"],
            {channel["channel_name"]: channel["paused"] for channel in topic["channels"]},
        )
        for topic in nsqd.stats()
    }
    assert found == {
        "bare": (False, {}),
        "paused": (True, {"in-paused": False}),
        "t": (False, {"flowing": False, "halted": True, "resumed": False}),
        "subscribed": (False, {"c": False}),
    }


def test_what_is_paused_holds_back_after_a_kill_until_it_is_not(nsqd: NsqdProcess) -> None:
    nsqd.create("t", "c")
    nsqd.order("/topic/pause?topic=t")
    nsqd.publish("t", numbered(10))
    nsqd.kill()
    nsqd.start()
    assert (nsqd.stats("t")[0]["depth"], nsqd.counts("t", "c")) == (10, NOTHING)
    nsqd.order("/channel/pause?topic=t&channel=c")
    nsqd.order("/topic/unpause?topic=t")
    with nsqd.client() as consumer:
        consumer.sub("t", "c", ready=10)
        assert nsqd.counts("t", "c") == Counts(10, 0, 0)
        nsqd.order("/channel/unpause?topic=t&channel=c")
        assert bodies_of(consumer.drain(10)) == numbered(10)


def test_no_id_is_ever_given_twice(nsqd: NsqdProcess) -> None:
    """Not after a kill, to a topic that was deleted and made again, or after the data path was wiped."""
    ids: list[bytes] = []

    def pass_through() -> None:
        nsqd.create("t", "c")
        nsqd.publish("t", numbered(50))
        ids.extend(message.id for message in nsqd.drain("t", "c", 50))
        nsqd.store()

    pass_through()
    nsqd.kill()
    nsqd.start()
    pass_through()
    nsqd.order("/topic/delete?topic=t")
    pass_through()
    nsqd.order("/topic/delete?topic=t")
    nsqd.kill()
    nsqd.start()
    pass_through()
    nsqd.kill()
    shutil.rmtree(nsqd.data_path)
    nsqd.data_path.mkdir()
    nsqd.start()
    pass_through()
    assert len(set(ids)) == len(ids) == 250


def test_sigterm_ends_connections_and_keeps_all_that_is_unfinished(keeping: NsqdProcess) -> None:
    keeping.create("t", "c")
    published = numbered(1000)
    keeping.publish("t", published)
    with keeping.client() as consumer, keeping.client() as idle, keeping.client(b"") as silent:
        consumer.sub("t", "c", ready=300)
        finished, requeued, in_flight = consumer.take(100), consumer.take(100), consumer.take(100)
        consumer.rdy(0)
        consumer.fin(finished)
        for message in requeued:
            consumer.req(message, 0)
        consumer.cls()
        keeping.stop()
        assert [client.rest() for client in (consumer, idle, silent)] == [[], [], []]
    keeping.start()
    assert keeping.counts("t", "c") == Counts(900, 0, 0)
    received = keeping.drain("t", "c", 900)
    assert sorted(bodies_of(received)) == sorted(set(published) - set(bodies_of(finished)))
    seen = set(bodies_of(requeued + in_flight))
    assert all(message.attempts == (2 if message.body in seen else 1) for message in received)


def test_a_data_path_has_one_broker(nsqd: NsqdProcess) -> None:
    second = subprocess.run(nsqd.command(), capture_output=True, text=True, check=False)
    assert (second.returncode, second.stdout, second.stderr.count("\n")) == (1, "", 1)
    assert "FATAL: failed to instantiate nsqd - failed to lock data-path" in second.stderr
    assert nsqd.http("GET", "/ping").body == b"OK"

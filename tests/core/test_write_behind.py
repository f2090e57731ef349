"""Durability class memory: the same promises while the broker runs, and a late commit."""

from __future__ import annotations

from typing import Any

from nsqtw.core.write_behind import WRITE_BEHIND_BYTES
from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness


def memory_harness(**options: Any) -> BrokerHarness:
    return BrokerHarness(durability="memory", **options)


def fail(harness: BrokerHarness, text: str) -> Any:
    """Let commits fail; returns what undoes it."""
    commit = harness.backend.commit
    harness.backend.commit = lambda writes, durable: {queue: BackendError(text) for queue, _ in writes}
    return lambda: setattr(harness.backend, "commit", commit)


def test_an_ok_comes_before_the_commit_and_the_commit_within_a_second() -> None:
    harness = memory_harness()
    reader = harness.reader(ready=1)
    answers = harness.put(b"a", b"b")
    assert [m.body for m in reader.read()] == [b"a"]
    assert (answers, harness.topic().log.queue.size) == ([None], 0)
    harness.wait(1.0)
    assert harness.topic().log.queue.size > 0


def test_what_every_channel_has_finished_is_never_written() -> None:
    harness = memory_harness()
    one, two = harness.reader("one"), harness.reader("two")
    harness.put(b"a")
    for reader in (one, two):
        reader.finish(*[m.id for m in reader.read()])
    harness.wait(1.0)
    assert harness.topic().log.queue.size == 0
    harness.put(b"b")
    one.finish(*[m.id for m in one.read()])
    two.read()
    harness.wait(1.0)
    assert harness.topic().log.queue.size > 0, "one of two has it in flight"


def test_what_a_topic_keeps_for_its_first_channel_is_written() -> None:
    harness = memory_harness()
    harness.put(b"a")
    harness.turn()
    harness.wait(1.0)
    harness.save()
    harness.crash()
    assert harness.reader().bodies() == [b"a"]


def test_a_clean_stop_commits_the_rest() -> None:
    harness = memory_harness()
    harness.reader(ready=0)
    harness.put(b"a")
    harness.turn()
    harness.stop_and_start()
    assert harness.reader().bodies() == [b"a"]


def test_a_crash_before_the_commit_loses_it_and_nothing_else() -> None:
    harness = memory_harness()
    reader = harness.reader(ready=0)
    harness.put(b"a")
    harness.turn()
    harness.wait(1.0)
    harness.put(b"b")
    harness.turn()
    harness.save()
    harness.crash()
    reader = harness.reader()
    assert reader.bodies() == [b"a"]
    harness.put(b"c")
    assert reader.bodies() == [b"c"]
    assert reader.channel.depth == 0


def test_while_commits_fail_publishes_go_on_until_the_memory_for_it_is_full() -> None:
    harness = memory_harness()
    reader = harness.reader(ready=0)
    heal = fail(harness, "no space")
    chunk = [b"x" * 1_000_000] * 3
    answers = [harness.put(*chunk) for _ in range(3)]
    harness.turn()
    harness.wait(1.0)
    assert answers == [[None]] * 3
    assert str(harness.broker.health) == "NOK - no space"
    refused = harness.put(b"more")
    harness.turn()
    assert [str(answer) for answer in refused] == ["no space"]
    heal()
    harness.wait(1.0)
    assert str(harness.broker.health) == "OK"
    assert harness.put(b"again") == []
    harness.turn()
    assert reader.channel.depth == 10


def test_a_burst_larger_than_the_window_is_committed_in_between() -> None:
    harness = memory_harness()
    harness.reader(ready=0)
    answers = []
    for _ in range(4):
        answers += harness.put(*[b"x" * (WRITE_BEHIND_BYTES // 3)])
        harness.turn()
    harness.turn()
    assert harness.topic().log.queue.size > 0
    assert harness.topic().depth == 0


def test_no_more_messages_of_a_topic_wait_than_a_memory_queue_holds() -> None:
    harness = memory_harness(mem_queue_size=2)
    harness.reader(ready=0)
    harness.put(b"a", b"b")
    harness.turn()
    assert harness.topic().log.queue.size == 0
    harness.put(b"c")
    harness.turn()
    harness.turn()
    assert harness.topic().log.queue.size > 0
    harness.crash()
    assert harness.broker.topics["t"].depth == 3


def test_without_a_memory_queue_everything_is_written_at_once() -> None:
    harness = memory_harness(mem_queue_size=0)
    harness.put(b"a")
    harness.turn()
    harness.turn()
    assert harness.topic().log.queue.size > 0


def test_a_backend_that_raises_what_it_should_not_loses_nothing_once_it_works_again() -> None:
    def commit_badly(writes: Any, durable: bool) -> None:
        raise RuntimeError("unforeseen")

    harness = memory_harness()
    harness.channel()
    harness.put(b"a")
    harness.turn()
    commit, harness.backend.commit = harness.backend.commit, commit_badly
    harness.wait(1.0)
    assert str(harness.broker.health) == "NOK - RuntimeError: unforeseen"
    harness.backend.commit = commit
    harness.wait(1.0)
    assert str(harness.broker.health) == "OK"
    harness.put(b"b")
    harness.turn()
    harness.backend.commit = commit_badly
    harness.stop_and_start()  # this ends all the same
    assert harness.reader().bodies() == [b"a"]


def test_a_stop_tries_again_when_the_commit_fails_once() -> None:
    harness = memory_harness()
    harness.channel()
    harness.put(b"a")
    harness.turn()
    commit = harness.backend.commit
    failures = [BackendError("EIO")]

    def fail_once(writes: Any, durable: bool) -> Any:
        return {queue: failures.pop() for queue, _ in writes} if failures and writes else commit(writes, durable)

    harness.backend.commit = fail_once
    harness.stop_and_start()
    assert harness.reader().bodies() == [b"a"]


def test_a_stop_says_what_could_not_be_stored() -> None:
    harness = memory_harness()
    harness.channel()
    harness.put(b"a", b"b")
    harness.turn()
    heal = fail(harness, "EIO")
    harness.broker.stop(harness.now)
    assert harness.lines[-1] == ("error", "TOPIC(t): 2 memory messages could not be stored - EIO")
    heal()

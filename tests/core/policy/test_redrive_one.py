"""One message leaves a channel: a dead letter that is put back, or any message that is finished. The others stay."""

from __future__ import annotations

import pytest

from nsqtw.core.policy import redrive as redrive_module
from nsqtw.core.policy.redrive import Finishing, Redrive
from nsqtw.core.segment import id_of
from nsqtw.errors import BackendError
from tests.core.policy.harness import settle
from tests.core.policy.test_redrive import Core

BODIES = [b"%d" % number for number in range(5)]
STEPS = range(14)


class OneCore(Core):
    """Dead letters of `c` of `t`, some of which were delivered in the dead-letter topic before."""

    def __init__(self, page_rows: int = 1024, letters: dict[str, object] | None = None) -> None:
        self.letters_policy = letters or {}
        super().__init__(page_rows=page_rows)
        self.die(*BODIES)
        self.follow()
        reader = self.reader("c", "t.dead", ready=2)
        self.ids: dict[bytes, bytes] = {}
        (first, second) = reader.read()
        reader.requeue(second.id)
        reader.requeue(first.id)
        reader.leave()
        first_number = int(first.id, 16)
        for number, body in enumerate(BODIES):
            self.ids[body] = b"%016x" % (first_number + number)
        self.save()

    def follow(self) -> None:
        super().follow()
        if "t.dead" in self.broker.topics:
            self.channel("c", "t.dead").policies.set(self.letters_policy)

    def put_back(self, only: bytes) -> Redrive:
        topic, letter_topic = self.topic(), self.topic("t.dead")
        channels = topic.channels["c"], letter_topic.channels["c"]
        self.ended: list[None] = []
        return Redrive(
            topic, channels[0], letter_topic, channels[1], 0, 0, self.now, only, lambda: self.ended.append(None)
        )

    def finish(self, only: bytes) -> Redrive:
        topic = self.topic("t.dead")
        self.ended = []
        return Finishing(topic, topic.channels["c"], only, self.now, lambda: self.ended.append(None))

    def left(self) -> list[tuple[bytes, int]]:
        """What a consumer gets of the dead letters: bodies and attempts."""
        reader = self.reader("c", "t.dead")
        settle(self)
        found = reader.read()
        reader.finish(*[message.id for message in found])
        reader.leave()
        return [(message.body, message.attempts) for message in found]


ALL = [(b"0", 2), (b"1", 2), (b"2", 1), (b"3", 1), (b"4", 1)]


@pytest.mark.parametrize("page_rows", [1, 1024])
@pytest.mark.parametrize("letters", [{}, {"ordered_by": "header:key"}, {"priority": True}], ids=["", "order", "class"])
@pytest.mark.parametrize("body", BODIES)
def test_one_letter_is_put_back_and_the_others_stay(body: bytes, letters: dict[str, object], page_rows: int) -> None:
    core = OneCore(page_rows, letters)
    redrive = core.put_back(core.ids[body])
    settle(core)
    assert redrive.progress() == {**redrive.progress(), "state": "done", "total": 1, "redriven": 1, "others": 0}
    assert core.ended == [None]
    assert sorted(core.left()) == [each for each in ALL if each[0] != body]
    assert (core.got(), core.got("other")) == ([body], [])


@pytest.mark.parametrize("body", BODIES)
def test_one_message_is_finished_and_the_others_stay(body: bytes) -> None:
    core = OneCore()
    finishing = core.finish(core.ids[body])
    settle(core)
    assert (finishing.state, finishing.redriven, core.ended) == ("done", 1, [None])
    core.save()
    core.start_again()
    assert sorted(core.left()) == [each for each in ALL if each[0] != body]
    assert core.got() == core.got("other") == []


@pytest.mark.parametrize("kind", ["put_back", "finish"])
def test_a_message_that_is_not_there_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "BATCH", 2)
    core = OneCore()
    redrive: Redrive = getattr(core, kind)(id_of(1, 999))
    settle(core, 40)
    assert (redrive.state, redrive.redriven, redrive.error, core.ended) == ("done", 0, "", [None])
    assert sorted(core.left()) == ALL
    assert core.got() == []


@pytest.mark.parametrize("page_rows", [1, 1024])
@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("body", [b"1", b"3"])
@pytest.mark.parametrize("steps", STEPS)
def test_a_crash_at_any_step_neither_loses_nor_doubles_a_letter(
    steps: int, body: bytes, is_saved: bool, page_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive_module, "BATCH", 2)
    core = OneCore(page_rows)
    core.put_back(core.ids[body])
    for _ in range(steps):
        core.turn()
        if core.broker.checkpointer.are_waited_for:
            core.save()
    if is_saved:
        core.save()
    core.start_again()
    left = [each for each, _ in core.left()]
    assert sorted(left + core.got()) == BODIES
    assert set(BODIES) - set(left) <= {body}


@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("steps", STEPS)
def test_a_crash_while_one_is_finished_keeps_the_others(steps: int, is_saved: bool) -> None:
    core = OneCore()
    core.finish(core.ids[b"3"])
    settle(core, steps)
    is_answered = bool(core.ended) and is_saved
    if is_saved:
        core.save()
    core.start_again()
    left = sorted(each for each, _ in core.left())
    assert left in (BODIES, [b"0", b"1", b"2", b"4"])
    assert not is_answered or b"3" not in left


def test_a_letter_whose_saving_failed_is_not_put_back() -> None:
    core = OneCore()
    redrive = core.put_back(core.ids[b"3"])
    while not core.broker.checkpointer.are_waited_for:
        core.turn()
    core.save(BackendError("no space"))
    settle(core)
    assert (redrive.state, redrive.error, core.ended) == ("failed", "no space", [None])
    assert core.got() == []
    assert sorted(core.left()) == ALL


def test_a_redrive_whose_saving_failed_saves_again_before_it_stores() -> None:
    core = OneCore()
    redrive = core.redrive()
    while not core.broker.checkpointer.are_waited_for:
        core.turn()
    core.save(BackendError("no space"))
    for _ in range(5):
        core.turn()
    assert (redrive.error, core.got()) == ("no space", [])
    core.wait(redrive_module.RETRY_SECONDS)
    core.turn()
    assert core.broker.checkpointer.are_waited_for
    settle(core)
    assert redrive.state == "done"
    assert sorted(core.got()) == BODIES


def test_a_channel_that_delivers_nothing_keeps_its_message() -> None:
    core = OneCore()
    core.channel("c", "t.dead").pause()
    redrive = core.finish(core.ids[b"3"])
    settle(core)
    assert redrive.state == "running"
    core.wait(11.0)
    settle(core)
    assert redrive.state == "failed" and "paused" in redrive.error
    core.channel("c", "t.dead").unpause()
    assert sorted(core.left()) == ALL


def test_a_full_channel_keeps_the_letter() -> None:
    core = OneCore()
    core.channel("c").policies.set({"max_attempts": 1, "max_depth": 1})
    core.put(b"waits")
    core.turn()
    redrive = core.put_back(core.ids[b"3"])
    settle(core)
    assert (redrive.state, redrive.error) == ("failed", "channel c has reached its max_depth")
    assert sorted(core.left()) == ALL

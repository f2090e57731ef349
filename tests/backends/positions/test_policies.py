"""The settings of policies in positions.db: kept, repaired, and no obstacle to an older nsqtw when there are none."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.backends.positions import store
from nsqtw.backends.positions.schema import PLAIN, POLICIES
from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint, CursorState, SavedState, TopicState
from nsqtw.errors import BackendError

CHANNEL = {"max_attempts": 5, "requeue_delay": 1.5, "max_rate": 0.5, "priority": True, "dead_letter_topic": "x"}
TOPIC = {"message_ttl": 3600.0}


def topic(of_topic: dict[str, Any], of_channel: dict[str, Any]) -> TopicState:
    return TopicState("t", policy=of_topic, cursors=[CursorState("c", policy=of_channel)])


def load(path: str) -> SavedState:
    positions = Positions(path)
    try:
        return positions.load()
    finally:
        positions.close(False)


def version(path: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT version FROM broker").fetchone()[0]
        return found


def change(path: str, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def test_the_version_is_raised_while_something_is_set(positions: Positions, path: str) -> None:
    positions.save(Checkpoint(topics=[topic({}, {})]))
    assert version(path) == PLAIN
    positions.save(Checkpoint(topics=[topic({}, CHANNEL)]))
    assert version(path) == POLICIES
    positions.save(Checkpoint(topics=[topic(TOPIC, CHANNEL)]))
    positions.save(Checkpoint(topics=[topic(TOPIC, {})]))
    assert version(path) == POLICIES
    positions.save(Checkpoint(deleted_topics=["t"]))
    assert version(path) == PLAIN


def test_an_older_nsqtw_says_that_it_does_not_know_the_version(
    positions: Positions, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions.save(Checkpoint(topics=[topic(TOPIC, {})]))
    positions.close(True)
    monkeypatch.setattr(store, "VERSION", PLAIN)
    with pytest.raises(BackendError, match=r"positions.db has schema version 5; this nsqtw knows 4"):
        load(path)


def test_a_save_that_failed_leaves_what_was_saved(positions: Positions, path: str) -> None:
    positions.save(Checkpoint(topics=[topic({}, {})]))
    other = sqlite3.connect(path)
    other.execute("CREATE TRIGGER stop BEFORE UPDATE ON topic BEGIN SELECT RAISE(ABORT, 'no'); END")
    other.commit()
    with pytest.raises(BackendError, match="no"):
        positions.save(Checkpoint(topics=[topic(TOPIC, CHANNEL)], deleted_channels=[("t", "c")]))
    other.execute("DROP TRIGGER stop")
    other.commit()
    other.close()
    assert version(path) == PLAIN
    positions.save(Checkpoint(topics=[topic(TOPIC, CHANNEL)]))
    (found,) = load(path).topics
    assert (found.policy, found.cursors[0].policy) == (TOPIC, CHANNEL)


def test_what_makes_no_sense_is_left_out_and_reported_once(positions: Positions, path: str) -> None:
    positions.save(Checkpoint(topics=[topic(TOPIC, CHANNEL)]))
    positions.close(True)
    odd = '{"max_attempts": -1, "newer": 3, "priority": true, "ordered_by": "header:k", "max_depth": 7}'
    change(path, "UPDATE policy SET settings = ? WHERE channel = 'c'", odd)
    change(path, "UPDATE policy SET settings = ? WHERE channel = ''", b"\xff")
    change(path, "INSERT INTO policy VALUES ('t', 'gone', '{}')")
    saved = load(path)
    assert saved.invalid == [
        "TOPIC(t): policy: the settings are no JSON object: it is left out",
        "TOPIC(t): CHANNEL(c): policy: max_attempts must be 0 to 65535: it is left out",
        "TOPIC(t): CHANNEL(c): policy: unknown setting 'newer': it is left out",
        "TOPIC(t): CHANNEL(c): policy: priority and ordered_by cannot be used together: a priority changes the order: "
        "it is left out",
    ]
    (found,) = saved.topics
    assert (found.policy, found.cursors[0].policy) == ({}, {"priority": True, "max_depth": 7})
    again = load(path)
    assert (again.invalid, again.topics) == ([], saved.topics)


NAMES = st.sampled_from(["a", "b"])
POLICY = st.fixed_dictionaries({}, optional={"max_depth": st.integers(0, 9), "max_age": st.sampled_from([0.5, 60.0])})
STEPS = st.one_of(
    st.tuples(st.just("set"), NAMES, NAMES, POLICY),
    st.tuples(st.just("delete topic"), NAMES, NAMES, st.none()),
    st.tuples(st.just("delete channel"), NAMES, NAMES, st.none()),
    st.tuples(st.just("restart"), NAMES, NAMES, st.none()),
)


@settings(max_examples=12, deadline=None)
@given(steps=st.lists(STEPS, max_size=8))
def test_it_is_a_mapping_that_outlives_restarts(steps: list[tuple[str, str, str, dict[str, Any] | None]]) -> None:
    model: dict[tuple[str, str], dict[str, Any]] = {}
    with TemporaryDirectory(prefix="plumbing-") as directory:
        path = f"{directory}/positions.db"
        positions = Positions(path)
        positions.load()
        for step, name, channel, policy in steps:
            if step == "set" and policy is not None:
                cursor = CursorState(channel, policy=policy)
                positions.save(Checkpoint(topics=[TopicState(name, cursors=[cursor])]))
                model[name, channel] = policy
            elif step == "delete topic":
                positions.save(Checkpoint(deleted_topics=[name]))
                model = {key: value for key, value in model.items() if key[0] != name}
            elif step == "delete channel":
                positions.save(Checkpoint(deleted_channels=[(name, channel)]))
                model.pop((name, channel), None)
            else:
                positions.close(False)
                positions = Positions(path)
                positions.load()
        positions.close(False)
        saved = load(path)
        found = {(topic.name, cursor.name): cursor.policy for topic in saved.topics for cursor in topic.cursors}
        assert found == model
        assert version(path) == (POLICIES if any(model.values()) else PLAIN)

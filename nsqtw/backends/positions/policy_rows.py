"""
The settings of policies that were made while a broker ran, in `positions.db`.

    policy (topic, channel, settings)    settings: a JSON object; channel: "" for the settings of the topic itself

The table is there, and the database has at least version POLICIES, while something is set: so an older nsqtw, which
would ignore what an administrator has set, says that it does not know this version; and starts again when all of it is
unset.
Settings that make no sense are left out and reported, the others stay.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nsqtw.core.checkpoint import SavedState, TopicState
from nsqtw.errors import InvalidPolicy
from nsqtw.options.refusals import check_together
from nsqtw.options.settings import ChannelPolicy, PolicyClass, TopicPolicy, policy_json, read_setting

_TABLE = """
CREATE TABLE IF NOT EXISTS policy (
    topic TEXT NOT NULL,
    channel TEXT NOT NULL,
    settings TEXT NOT NULL,
    PRIMARY KEY (topic, channel)
) WITHOUT ROWID
"""


class PolicyRows:
    """The rows of the table, in memory too, so that a checkpoint writes only those that changed."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], str] = {}

    @property
    def are_set(self) -> bool:
        return bool(self._rows)

    def read(self, connection: sqlite3.Connection) -> None:
        """Take them from the database: at start, and when a transaction failed."""
        is_there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'policy'").fetchone()
        rows = connection.execute("SELECT topic, channel, settings FROM policy") if is_there else ()
        self._rows = {(topic, channel): text for topic, channel, text in rows}

    def load(self, connection: sqlite3.Connection, saved: SavedState) -> None:
        """Give topics and cursors their settings, and remove what is invalid. In a transaction."""
        self.read(connection)
        if not self._rows:
            return
        owners: dict[tuple[str, str], Any] = {}
        for topic in saved.topics:
            owners[topic.name, ""] = topic
            owners.update({(topic.name, cursor.name): cursor for cursor in topic.cursors})
        for key, text in list(self._rows.items()):
            owner = owners.get(key)
            if owner is None:
                self._put(connection, key, "")
                continue
            owner.policy, complaints = _read(_policy_of(key), text)
            name = f"TOPIC({key[0]}){f': CHANNEL({key[1]})' if key[1] else ''}"
            saved.invalid += [f"{name}: policy: {complaint}: it is left out" for complaint in complaints]
        self.write(connection, saved.topics)

    def write(self, connection: sqlite3.Connection, topics: Iterable[TopicState]) -> None:
        """Save what changed of the settings in a checkpoint. In a transaction."""
        for key, policy in _policies_in(topics):
            if policy or key in self._rows:
                self._put(connection, key, _text(_policy_of(key), policy))

    def forget_topic(self, connection: sqlite3.Connection, topic: str) -> None:
        """A topic is deleted."""
        for key in [key for key in self._rows if key[0] == topic]:
            self._put(connection, key, "")

    def forget_channel(self, connection: sqlite3.Connection, topic: str, channel: str) -> None:
        """A channel is deleted."""
        self._put(connection, (topic, channel), "")

    def _put(self, connection: sqlite3.Connection, key: tuple[str, str], text: str) -> None:
        """Save the settings of a topic or channel; "" for none."""
        if text == self._rows.get(key, ""):
            return
        if not self._rows:
            connection.execute(_TABLE)
        if text:
            self._rows[key] = text
            connection.execute("INSERT OR REPLACE INTO policy VALUES (?, ?, ?)", (*key, text))
            return
        del self._rows[key]
        connection.execute("DELETE FROM policy WHERE topic = ? AND channel = ?", key)
        if not self._rows:
            connection.execute("DROP TABLE policy")


def _policies_in(topics: Iterable[TopicState]) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    for topic in topics:
        yield (topic.name, ""), topic.policy
        for cursor in topic.cursors:
            yield (topic.name, cursor.name), cursor.policy


def _policy_of(key: tuple[str, str]) -> PolicyClass:
    return ChannelPolicy if key[1] else TopicPolicy


def _text(policy: PolicyClass, values: Mapping[str, Any]) -> str:
    return json.dumps(policy_json(policy, values)) if values else ""


def _read(policy: PolicyClass, text: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the valid settings in a text, and a complaint about each that is not."""
    values: dict[str, Any] = {}
    complaints: list[str] = []
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {}, ["the settings are no JSON object"]
    for name, raw in found.items():
        try:
            value = read_setting(policy, name, raw)
            check_together(policy, {**values, name: value})
        except InvalidPolicy as error:
            complaints.append(str(error))
        else:
            values[name] = value
    return values, complaints

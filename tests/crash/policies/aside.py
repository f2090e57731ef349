"""A topic beside that of a row, for messages that are there when the broker dies and are looked at in its next life."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.crash.control import WALL_START_NS
from tests.crash.harness import Harness
from tests.crash.history import FSYNC, Channel
from tests.crash.promises import expect

_MOST_SHOWN = 100
_OK = 200


class Deferred(NamedTuple):
    """A deferred message as the broker shows it. `due`: in seconds of the clock of `now`."""

    attempts: int
    due: float


class Aside:
    """
    Its one channel. No client of a round uses it, so what is in it is known exactly. It is on stable storage when a
    publish is answered.
    """

    def __init__(self, house: Harness, topic: str, policy: Mapping[str, object]) -> None:
        self.channel = Channel(topic, "work")
        self._house = house
        self._policy = policy

    def config(self) -> str:
        """Tables of the config file."""
        return tables(self.channel, {"durability": FSYNC}, self._policy)

    def create(self) -> None:
        """Create the topic and its channel."""
        self._house.create(*self.channel)

    def stats(self) -> dict[str, Any]:
        """What /stats says of the channel."""
        return self._house.channel_stats()[self.channel][0]

    def deferred(self) -> dict[bytes, Deferred]:
        """The deferred messages, by body."""
        path = f"/v2/channel/messages?{self._query}&state=deferred&limit={_MOST_SHOWN}"
        answer = self._house.http("GET", path)
        expect(answer.status == _OK, path, answer)
        start_ns = WALL_START_NS + self._house.control.wall_offset_ns
        return {
            message["body"].encode(): Deferred(message["attempts"], (message["due"] - start_ns) / 1e9)
            for message in json.loads(answer.body)["messages"]
        }

    def empty(self) -> None:
        """Leave nothing to the next round."""
        self._house.order(f"/channel/empty?{self._query}")

    @property
    def _query(self) -> str:
        return f"topic={self.channel.topic}&channel={self.channel.name}"


def tables(channel: Channel, topic_settings: Mapping[str, object], channel_settings: Mapping[str, object]) -> str:
    """The tables of the config file for a topic and one of its channels."""
    text = f'[topic."{channel.topic}"]\n{_lines(topic_settings)}'
    return f'{text}[channel."{channel}"]\n{_lines(channel_settings)}' if channel_settings else text


def _lines(settings: Mapping[str, object]) -> str:
    return "".join(f"{key} = {_toml(value)}\n" for key, value in settings.items())


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, (bool, int)) else f'"{value}"'

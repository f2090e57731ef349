"""The lag of a stream from a topic's log, by one request to each nsqd that has the topic.

The broker counts: positions have gaps, so that the difference of two of them is no number of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

from pyspark_nsq.monitoring.answers import Answers
from pyspark_nsq.monitoring.figures import Lag, reported


class Behind(NamedTuple):
    """The unread messages of a reader of a log. `age_ms`: time since the oldest of them was published."""

    messages: int
    age_ms: int
    latest: int


Place = tuple[str, str]
"""A topic and the base URL of an nsqd."""


class LogLag:
    """The lag behind the end of the micro-batch that was planned last.

    `ask` requests the lag of a topic from an nsqd and a position on; its future fails with ReadError. `topic` is that
    of offsets of the form {address: position}; offsets of the form {topic: {address: position}} have their own.
    """

    def __init__(self, topic: str, ask: Callable[[str, str, int], Future[Behind]]) -> None:
        self._topic = topic
        self._ask = ask
        self._answers: Answers[Place, Behind] = Answers()

    def report(self, planned: dict[str, Any], retried: int) -> dict[str, Any]:
        """Return the ends of the logs in the form of `planned`, with the figures of the source."""
        places = {(topic, address): position for topic, address, position in self._places(planned)}
        answers = self._answers.get(places, lambda place: self._ask(*place, places[place]))
        topics = dict.fromkeys(topic for topic, _ in places)
        return reported(
            self._latest(planned, answers),
            [_lag(topic, [one for (of, _), one in answers.items() if of == topic]) for topic in topics],
            unanswered=len(places) - len(answers),
            retried=retried,
        )

    def _places(self, offset: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
        for key, value in offset.items():
            if isinstance(value, dict):
                yield from ((key, address, int(position)) for address, position in value.items())
            else:
                yield self._topic, key, int(value)

    def _latest(self, planned: dict[str, Any], answers: dict[Place, Behind]) -> dict[str, Any]:
        def end(topic: str, address: str, position: int) -> int:
            found = answers.get((topic, address))
            return position if found is None else max(position, found.latest)

        return {
            key: {address: end(key, address, position) for address, position in value.items()}
            if isinstance(value, dict)
            else end(self._topic, key, value)
            for key, value in planned.items()
        }


def _lag(topic: str, answers: list[Behind]) -> Lag:
    return Lag(topic, "", sum(one.messages for one in answers), max((one.age_ms for one in answers), default=0) / 1000)

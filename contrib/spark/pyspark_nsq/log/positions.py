"""Positions in logs, and their form as Spark's offset.

A log is a topic on one nsqd. The offset with the option `topic` is ``{"http://127.0.0.1:4151": 4503599627370496}``.
With `subscribe` or `subscribePattern` it has such an object for each topic. Both forms are accepted, so that a query
can continue with the checkpoint of a query with the option `topic`.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.log import LogOptions


class Log(NamedTuple):
    """The log of a topic on the nsqd at a base URL."""

    topic: str
    address: str


#: A position in each log.
Positions = dict[Log, int]
#: The position before all messages, from which a new log is read.
BEGINNING = 0


def to_offset(options: LogOptions, positions: Positions) -> dict[str, Any]:
    """Return the offset for Spark."""
    if options.topic is not None:
        return {log.address: at for log, at in positions.items()}
    found: dict[str, dict[str, int]] = {}
    for log, at in positions.items():
        found.setdefault(log.topic, {})[log.address] = at
    return found


def from_offset(options: LogOptions, offset: dict[str, Any]) -> Positions:
    """Return the positions of an offset.

    Raises OptionError when it is of another source, or neither it nor the options name their topic.
    """
    if not all(_is_of_a_log(*each) for each in offset.items()):
        raise OptionError(
            f"the checkpoint is not of a query with replay=log, but has the offset {json.dumps(offset)[:200]}; go on "
            'with the source that it is of, such as a channel, or give "checkpointLocation" another folder'
        )
    if any(not isinstance(each, dict) for each in offset.values()):
        topics = options.topics or ()
        if len(topics) != 1:
            example = json.dumps({"TOPIC": offset})
            raise OptionError(
                'the checkpoint is of a query with the option "topic" and does not say which one it was; go on with '
                f'that option, or start a new checkpoint with the option "startingOffsets" set to {example}'
            )
        return {Log(topics[0], address): int(at) for address, at in offset.items()}
    return {Log(topic, address): int(at) for topic, each in offset.items() for address, at in each.items()}


def _is_of_a_log(name: str, part: Any) -> bool:
    """Say whether a member of an offset is the position of an address, or the positions of a topic."""
    pairs = part.items() if isinstance(part, dict) else [(name, part)]
    return all("://" in address and isinstance(at, int) for address, at in pairs)

"""The figures of sinks, on the way from the committing process to the listener.

Spark shows no figures of sinks that are written in Python except the number of rows, and commits in a process of its
own on the driver's machine. `Receiver` is a UDP socket on the loopback. Its address is a setting of the session, which
Spark gives to every task as a local property. A task returns it with its figures, and the committing process sends the
sum there in one datagram. No process waits for another, a process that is killed leaves nothing behind, and without a
listener nothing is sent.

The datagram is in the socket before Spark announces the progress of the micro-batch, so that no thread has to read it.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import TaskContext

SETTING = "spark.nsq.metrics.receiver"
_QUERY = "sql.streaming.queryId"
_HOST = "127.0.0.1"
_MOST_BYTES = 65_536


@dataclass(frozen=True)
class Origin:
    """The query of a task, "" for a batch, and the address of the listener, "" for none."""

    query: str = ""
    receiver: str = ""

    @classmethod
    def of_task(cls) -> Origin:
        """Return the origin of the task that runs in this process."""
        context = TaskContext.get()
        if context is None:
            return cls()
        return cls(context.getLocalProperty(_QUERY) or "", context.getLocalProperty(SETTING) or "")


class Report(NamedTuple):
    """The figures of a job or a micro-batch, by their names in lines of progress (`sink.tally`)."""

    event: str
    query: str
    figures: dict[str, float]


def report(event: str, origin: Origin, figures: Mapping[str, int]) -> None:
    """Send the figures of all tasks of a job or a micro-batch to the listener of one of them."""
    if origin.receiver:
        port, _, token = origin.receiver.partition("/")
        line = json.dumps([token, event, origin.query, dict(figures)]).encode("ascii")
        # An error of the figures must not fail a micro-batch that is published.
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(line, (_HOST, int(port)))


class Receiver:
    """Receives reports. `address` is the value of the setting."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((_HOST, 0))
        self._socket.setblocking(False)
        self.address = f"{self._socket.getsockname()[1]}/{self._token}"

    def reports(self) -> list[Report]:
        """Return the reports since the last call."""
        found: list[Report] = []
        while True:
            try:
                line = self._socket.recv(_MOST_BYTES)
            except BlockingIOError:
                return found
            try:
                token, event, query, figures = json.loads(line)
                if token == self._token:
                    found.append(Report(event, query, figures))
            except (ValueError, TypeError):
                continue  # not from this connector

    def close(self) -> None:
        self._socket.close()

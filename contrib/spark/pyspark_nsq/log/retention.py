"""Logs without a retention. They lack what all channels have finished, and without a channel every message."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from pyspark_nsq.errors import DataLossError, ReadError
from pyspark_nsq.log.client import LogClient
from pyspark_nsq.log.positions import Log

_log = logging.getLogger("pyspark_nsq")
_STATS = "/stats?format=json&include_clients=false&include_mem=false"


def warn_of_missing(client: LogClient, logs: Iterable[Log], *, fails: bool) -> None:
    """Log a warning for each log without a retention.

    With `fails`, raises DataLossError for messages that wait for the first channel of their topic: the log lacks them.
    """
    for text, waiting in _missing(client, logs):
        if waiting and fails:
            raise DataLossError(
                f"{text}; it lacks {waiting} message(s) now; set the option "
                '"failOnDataLoss" to "false" to go on without them'
            )
        _log.warning("%s", text)


def missing_retentions(client: LogClient, logs: Iterable[Log]) -> list[str]:
    """Return a text for each log without a retention. An nsqd that does not tell is left out."""
    return [text for text, _ in _missing(client, logs)]


def _missing(client: LogClient, logs: Iterable[Log]) -> Iterator[tuple[str, int]]:
    """Yield the text for each log without a retention, and how many messages wait for the topic's first channel."""
    for log, topic in _topics(client, logs):
        if not topic.get("retention"):
            text = (
                f'topic "{log.topic}" on {log.address} has no retention: its log lacks what all channels have '
                "finished, and without a channel every message; set one: curl -X POST "
                f"'{log.address}/v2/topic/retention?topic={quote(log.topic)}&time=24h'"
            )
            yield text, 0 if topic.get("channels") else int(topic.get("depth") or 0)


def _topics(client: LogClient, logs: Iterable[Log]) -> Iterator[tuple[Log, dict[str, Any]]]:
    """Yield the figures of the topic of each log."""
    by_address: dict[str, dict[str, Log]] = {}
    for log in logs:
        by_address.setdefault(log.address, {})[log.topic] = log
    coming = {}
    for address, wanted in by_address.items():
        one = f"&topic={quote(next(iter(wanted)))}" if len(wanted) == 1 else ""
        coming[address] = client.document(f"{address}{_STATS}{one}")
    for address, each in coming.items():
        try:
            document = each.result()
            topics = document.get("data", document)["topics"] or []
            known = {str(topic["topic_name"]): topic for topic in topics}
        except (ReadError, KeyError, TypeError, AttributeError):
            continue
        yield from ((log, known[name]) for name, log in by_address[address].items() if name in known)

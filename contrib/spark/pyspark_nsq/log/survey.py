"""The ends of all logs of a query, and the differences to a stream's positions: new, deleted and replaced logs."""

from __future__ import annotations

from pyspark_nsq.errors import DataLossError
from pyspark_nsq.log.client import Extents, LogClient
from pyspark_nsq.log.discovery import Discovery
from pyspark_nsq.log.positions import BEGINNING, Log, Positions
from pyspark_nsq.options.log import LogOptions

#: A log that ends at most so many positions before the position of a stream has lost its end: its next message gets a
#: higher position, as nsqd reserves them in blocks. A log that ends earlier is that of another data path.
_MOST_LOST_AT_THE_END = 1 << 30


class Survey:
    """Asks for the extents of the logs of `options`. Every method raises ReadError."""

    def __init__(self, client: LogClient, options: LogOptions) -> None:
        self._client, self._options = client, options
        self._discovery = Discovery(client, options)

    def extents(self, start: Positions) -> Extents:
        """Return the extents of all logs that are found, and of those in `start` that are not found any more.

        The latter are requested only after a new search for logs, and left out while their nsqd is down.
        """
        logs, are_new = self._discovery.logs()
        found = self._client.extents(logs)
        if are_new:
            found |= self._client.extents_of_known(self.missing(start, found))
        return found

    def missing(self, start: Positions, found: Extents) -> list[Log]:
        """Return the logs of `start` that are not among `found`, although the options select them."""
        return [log for log in start if log not in found and self._reads(log)]

    def _reads(self, log: Log) -> bool:
        addresses = self._options.addresses
        return self._options.selects(log.topic) and (not addresses or log.address in addresses)


def ends(options: LogOptions, start: Positions, found: Extents) -> Positions:
    """Return the end of each log. Raises DataLossError, unless failOnDataLoss is false.

    A log that is not in `start` is new, and is read from its beginning. One that was deleted, or is the log of another
    data path, is left out: if it exists the next time, it is new. The position in a log whose nsqd is down is kept.
    A topic that the options do not select any more is left out.
    """
    positions: Positions = {}
    for log, at in start.items():
        if not options.selects(log.topic):
            continue
        if log not in found:
            positions[log] = at
            continue
        extent = found[log]
        if extent is not None and extent.latest + _MOST_LOST_AT_THE_END >= at:
            positions[log] = max(extent.latest, at)
        elif at == BEGINNING:
            positions[log] = at
        elif options.fail_on_data_loss:
            raise DataLossError(_lost(log, at, None if extent is None else extent.latest))
    for log, extent in found.items():
        if log not in start and extent is not None:
            positions[log] = extent.latest
    return positions


def _lost(log: Log, at: int, latest: int | None) -> str:
    told = (
        f'topic "{log.topic}" on {log.address} is deleted'
        if latest is None
        else f'topic "{log.topic}" on {log.address} is another log now, which ends at position {latest}: the topic was '
        "deleted and created again, or nsqd has another data path"
    )
    return (
        f"{told}; the stream had read it up to position {at}, and messages behind that may be lost; set the option "
        '"failOnDataLoss" to "false" to go on without them'
    )

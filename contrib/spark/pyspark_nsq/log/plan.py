"""From what the user asks for to ranges of positions, and from those to partitions. On the driver."""

from __future__ import annotations

from pyspark_nsq.log.client import LogClient
from pyspark_nsq.log.rows import LogPartition, check
from pyspark_nsq.log.sections import fit
from pyspark_nsq.options.log import EARLIEST, LATEST, LogOptions, Positions

#: Where a log starts of which nothing is known yet: at whatever is the oldest.
BEGINNING = 0
#: As small as an answer gets: one section.
_ONE_SECTION = 1


def starting(client: LogClient, options: LogOptions, otherwise: str) -> Positions:
    """Where to start, by address. Raises ReadError."""
    return {address: _start(client, options, address, otherwise) for address in client.addresses()}


def ending(client: LogClient, options: LogOptions) -> Positions:
    """Where a batch ends, by address. Raises ReadError."""
    asked = LATEST if options.ending_offsets is None else options.ending_offsets
    return {
        address: _place(client.extent(address, end=options.ending_timestamp).end, client, address, asked)
        for address in client.addresses()
    }


def _start(client: LogClient, options: LogOptions, address: str, otherwise: str) -> int:
    if options.starting_timestamp is not None:
        return client.extent(address, start=options.starting_timestamp).first
    asked = otherwise if options.starting_offsets is None else options.starting_offsets
    return _place(BEGINNING, client, address, asked)


def _place(known: int, client: LogClient, address: str, asked: str | Positions) -> int:
    if isinstance(asked, dict):
        return asked.get(address, known)
    if asked == EARLIEST:
        return client.extent(address).earliest
    return known or client.extent(address).latest


def latest(client: LogClient, start: Positions) -> Positions:
    """The ends of all logs; also of those that are not in `start` yet."""
    ends = dict(start)
    for address in client.addresses():
        ends[address] = max(client.extent(address).latest, start.get(address, BEGINNING))
    return ends


def limited(client: LogClient, options: LogOptions, start: Positions, ends: Positions) -> Positions:
    """How far a micro-batch from `start` may go: each log gets its share of the limits."""
    waiting = [address for address, end in ends.items() if end > start.get(address, BEGINNING)]
    found = dict(ends)
    # Who comes first changes, so that a limit below the number of logs starves none.
    turn = sum(start.values()) % len(waiting) if waiting else 0
    for number, address in enumerate(waiting[turn:] + waiting[:turn]):
        at, end = start.get(address, BEGINNING), ends[address]
        if options.max_rows is not None:
            end = _after_rows(client, address, at, end, _share(options.max_rows, number, len(waiting)))
        if options.max_bytes is not None:
            end = _after_bytes(client, address, at, end, _share(options.max_bytes, number, len(waiting)))
        found[address] = end
    return found


def _share(total: int, number: int, count: int) -> int:
    part, rest = divmod(total, count)
    return part + (number < rest)


def _after_rows(client: LogClient, address: str, at: int, end: int, most: int) -> int:
    """There are no more rows than positions, and none in a gap, so it does not count before the first row."""
    if end - at <= most or most == 0:
        return min(end, at + most)
    part = client.read(address, at, _ONE_SECTION).result()
    first = part.sections[0].first if part.sections else at
    return min(end, max(at, first) + most)


def _after_bytes(client: LogClient, address: str, at: int, end: int, most: int) -> int:
    """Reads what it counts, as there is no other way to know; one row at least."""
    if most == 0:
        return at
    start, left = at, most
    while at < end:
        part = client.read(address, at, max(_ONE_SECTION, left)).result()
        for section in part.sections:
            if section.frames is None or section.first + section.messages <= at:
                continue
            stop, taken = fit(section, at, left)
            if stop < section.first + section.messages:
                return min(end, max(stop, start + 1))
            left -= taken
        if part.next <= at:
            return end
        at = part.next
    return end


def plan(client: LogClient, options: LogOptions, start: Positions, ends: Positions) -> list[LogPartition]:
    """The partitions of a range. Raises DataLossError when its beginning is gone, unless failOnDataLoss is false."""
    ranges = [(address, start.get(address, BEGINNING), end) for address, end in ends.items()]
    wholes = [_without_gap(client, options, LogPartition(*each)) for each in ranges if each[1] < each[2]]
    total = sum(whole.end - whole.start for whole in wholes)
    return [part for whole in wholes for part in _cut(whole, options.partitions, total)]


def _without_gap(client: LogClient, options: LogOptions, whole: LogPartition) -> LogPartition:
    """The same from its first message on."""
    part = client.read(whole.address, whole.start, _ONE_SECTION).result()
    if options.fail_on_data_loss:
        check(whole, whole.start, part)
    first = part.sections[0].first if part.sections else whole.start
    return LogPartition(whole.address, min(max(whole.start, first), whole.end), whole.end)


def _cut(whole: LogPartition, partitions: int, total: int) -> list[LogPartition]:
    """Its part of the partitions, one at least; none is empty."""
    length = whole.end - whole.start
    count = max(1, min(length, round(partitions * length / total))) if length else 0
    edges = [whole.start + length * number // count for number in range(count + 1)] if count else []
    return [LogPartition(whole.address, one, other) for one, other in zip(edges, edges[1:], strict=False)]

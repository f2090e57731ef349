"""The plan of a read, on the driver: ranges of positions by the options, and the partitions of a range."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from pyspark_nsq.errors import DataLossError, OptionError
from pyspark_nsq.log.client import Extents, LogClient, Part
from pyspark_nsq.log.filters import Bounds
from pyspark_nsq.log.positions import BEGINNING, Log, Positions
from pyspark_nsq.log.rows import LogPartition, LogRange, check
from pyspark_nsq.log.sections import fit
from pyspark_nsq.options.log import (
    EARLIEST,
    EARLIEST_POSITION,
    LATEST,
    LATEST_POSITION,
    ByTopic,
    LogOptions,
)

#: Limit of the smallest answer: one section.
_ONE_SECTION = 1
#: A task for fewer positions costs more than it reads.
_SMALL_TASK = 20_000


def starting(client: LogClient, options: LogOptions, logs: Iterable[Log], otherwise: str) -> Positions:
    """Return the starting position of each log. Raises ReadError, OptionError and DataLossError."""
    moment = options.starting_timestamp
    found = client.extents(logs, start_ms=moment)
    if moment is not None:
        return {log: extent.first for log, extent in found.items() if extent is not None}
    asked = otherwise if options.starting_offsets is None else options.starting_offsets
    if isinstance(asked, dict):
        return _asked(options, "startingOffsets", found, asked, BEGINNING)
    return _everywhere(found, asked)


def ending(client: LogClient, options: LogOptions, logs: Iterable[Log]) -> Positions:
    """Return the ending position of a batch in each log. Raises as `starting`."""
    moment = options.ending_timestamp
    found = client.extents(logs, end_ms=moment)
    if moment is not None:
        return {log: extent.end for log, extent in found.items() if extent is not None}
    asked = options.ending_offsets
    if isinstance(asked, dict):
        return _asked(options, "endingOffsets", found, asked, LATEST_POSITION)
    return _everywhere(found, LATEST)


def unknown_topics(options: LogOptions, known: Iterable[Log]) -> list[str]:
    """Return the topics of `options` without a known log."""
    return sorted(set(options.topics or ()) - {log.topic for log in known})


def check_topics(options: LogOptions, known: Iterable[Log]) -> None:
    """Raise OptionError for a topic of `options` without a known log, unless failOnDataLoss is false."""
    unknown = unknown_topics(options, known)
    if unknown and options.fail_on_data_loss:
        raise OptionError(
            f'no nsqd has the topic "{unknown[0]}"; correct its name, or set the option "failOnDataLoss" to "false" '
            "to go on without it"
        )


def _everywhere(found: Extents, word: str) -> Positions:
    extents = {log: extent for log, extent in found.items() if extent is not None}
    return {log: extent.earliest if word == EARLIEST else extent.latest for log, extent in extents.items()}


def _asked(options: LogOptions, name: str, found: Extents, asked: ByTopic, otherwise: int) -> Positions:
    """Return the positions of the option `name`; `otherwise` for a log that it does not name."""
    for topic, by_address in asked.items():
        for address, at in by_address.items():
            log = Log(topic, address)
            if log not in found:
                known = ", ".join(sorted(one.address for one in found if one.topic == topic)) or "nowhere"
                raise OptionError(f'option "{name}": the topic "{topic}" is not on {address}; it is on: {known}')
            if found[log] is None and at > BEGINNING and options.fail_on_data_loss:
                raise DataLossError(
                    f'option "{name}": the topic "{topic}" is not on {address}, so that position {at} is gone; '
                    'set the option "failOnDataLoss" to "false" to go on without it'
                )
    positions: Positions = {}
    for log, extent in found.items():
        if extent is not None:
            at = asked.get(log.topic, {}).get(log.address, otherwise)
            positions[log] = {EARLIEST_POSITION: extent.earliest, LATEST_POSITION: extent.latest}.get(at, at)
    return positions


def narrowed(client: LogClient, bounds: Bounds, start: Positions, ends: Positions) -> tuple[Positions, Positions]:
    """Return the part of the ranges that can have rows that pass the filters of a query. Raises ReadError."""
    logs = [log for log in ends if log in start and bounds.has_log(log)]
    start = {log: max(start[log], bounds.first or start[log]) for log in logs}
    ends = {log: ends[log] if bounds.end is None else min(ends[log], bounds.end) for log in logs}
    if bounds.start_ms is not None or bounds.end_ms is not None:
        for log, extent in client.extents(logs, bounds.start_ms, bounds.end_ms).items():
            if extent is not None:
                start[log], ends[log] = max(start[log], extent.first), min(ends[log], extent.end)
    return start, ends


def limited(client: LogClient, options: LogOptions, start: Positions, ends: Positions) -> Positions:
    """Return the end of a micro-batch from `start`: each log gets its share of the limits."""
    waiting = [log for log, end in ends.items() if end > start.get(log, BEGINNING)]
    # The first log changes with each micro-batch, so that each is read even with a limit below the number of logs.
    turn = sum(start.values()) % len(waiting) if waiting else 0
    waiting = waiting[turn:] + waiting[:turn]
    found = dict(ends)
    if options.max_rows is not None:
        shares = {log: _share(options.max_rows, number, len(waiting)) for number, log in enumerate(waiting)}
        found |= _after_rows(client, options.fetch_bytes, start, found, shares)
    if options.max_bytes is not None:
        for number, log in enumerate(waiting):
            share = _share(options.max_bytes, number, len(waiting))
            found[log] = _after_bytes(client, log, start.get(log, BEGINNING), found[log], share)
    return found


def _share(total: int, number: int, count: int) -> int:
    part, rest = divmod(total, count)
    return part + (number < rest)


def _after_rows(
    client: LogClient, fetch_bytes: int, start: Positions, ends: Positions, shares: dict[Log, int]
) -> Positions:
    """Return ends with at most the rows of `shares`. A gap before the first row of a log does not count."""
    found: Positions = {}
    firsts: Positions = {}
    for log, most in shares.items():
        at = start.get(log, BEGINNING)
        if ends[log] - at <= most or most == 0:
            found[log] = min(ends[log], at + most)
        else:
            firsts[log] = at
    for log, part in _first_parts(client, firsts).items():
        at = firsts[log]
        if part.sections or part.next <= at:
            first = part.sections[0].first if part.sections else at
            found[log] = min(ends[log], max(at, first) + shares[log])
        else:
            found[log] = _after_shown(client, fetch_bytes, log, part.next, ends[log], shares[log])
    return found


def _after_shown(client: LogClient, fetch_bytes: int, log: Log, at: int, end: int, most: int) -> int:
    """Return the end of `most` rows where the log also has messages of one channel, which are no rows.

    Reads the rows to count them.
    """
    while at < end:
        part = client.read(log, at, fetch_bytes).result()
        for section in part.sections:
            first = max(section.first, at)
            rows = max(0, section.first + section.messages - first)
            if rows >= most:
                return min(end, first + most)
            most -= rows
        if part.next <= at:
            break
        at = part.next
    return end


def _first_parts(client: LogClient, positions: Positions) -> dict[Log, Part]:
    """Return the first section of each log from a position on."""
    coming = {log: client.read(log, at, _ONE_SECTION) for log, at in positions.items()}
    return {log: each.result() for log, each in coming.items()}


def _after_bytes(client: LogClient, log: Log, at: int, end: int, most: int) -> int:
    """Return an end within a share of bytes, but at least one row. Reads the messages to count their bytes."""
    if most == 0:
        return at
    start, left = at, most
    while at < end:
        part = client.read(log, at, max(_ONE_SECTION, left)).result()
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
    """Return the partitions of a range.

    Raises DataLossError when its beginning is lost, unless failOnDataLoss is false.
    """
    ranges = [LogRange(log, start.get(log, BEGINNING), end) for log, end in ends.items()]
    wholes = _without_gaps(client, options, [each for each in ranges if each.start < each.end])
    total = sum(len(whole) for whole in wholes)
    pieces = [_cut(whole, _count(options, len(whole), total)) for whole in wholes if len(whole)]
    small = [piece for group in pieces if len(group) == 1 for piece in group]
    large = [LogPartition([piece]) for group in pieces if len(group) > 1 for piece in group]
    return large + _packed(small, _most_packed(options, total))


def _without_gaps(client: LogClient, options: LogOptions, ranges: list[LogRange]) -> list[LogRange]:
    """Return the ranges from their first messages on."""
    parts = _first_parts(client, {each.log: each.start for each in ranges})
    found = []
    for whole in ranges:
        part = parts[whole.log]
        if options.fail_on_data_loss:
            check(whole, whole.start, part)
        first = part.sections[0].first if part.sections else whole.start
        found.append(LogRange(whole.log, min(max(whole.start, first), whole.end), whole.end))
    return found


def _count(options: LogOptions, length: int, total: int) -> int:
    """Return the number of partitions of a range out of `numPartitions`: at least one, and none empty."""
    count = round(options.partitions * length / total)
    if options.max_records is not None:
        count = max(count, -(-length // options.max_records))
    return max(1, min(length, count))


def _cut(whole: LogRange, count: int) -> list[LogRange]:
    edges = [whole.start + len(whole) * number // count for number in range(count + 1)]
    return [LogRange(whole.log, one, other) for one, other in pairwise(edges)]


def _most_packed(options: LogOptions, total: int) -> int:
    """Return the largest number of positions of several logs that one task gets."""
    most = min(_SMALL_TASK, -(-total // options.partitions))
    return most if options.max_records is None else min(most, options.max_records)


def _packed(ranges: list[LogRange], most: int) -> list[LogPartition]:
    """Return partitions that combine small ranges, because thousands of small tasks would take long."""
    found: list[LogPartition] = []
    room = 0
    for each in ranges:
        if len(each) > room:
            found.append(LogPartition([]))
            room = most
        found[-1].ranges.append(each)
        room -= len(each)
    return found

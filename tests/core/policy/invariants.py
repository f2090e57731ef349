"""What is true of the position of a durable channel after each turn, whatever its policy."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from nsqtw.core.channel import Channel
from nsqtw.core.checkpoint import Phase
from nsqtw.core.due_order import BEFORE_ALL
from nsqtw.core.pending import PendingStore
from nsqtw.core.place import Place
from nsqtw.core.policy.order import OrderedPosition


def check_position(channel: Channel) -> None:
    """Check that what counts as ready can be delivered, and that each key that is busy has one head."""
    cursor = channel.cursor
    assert cursor is not None
    requeued = [sequence for _, sequence in cursor._redeliveries._queue]
    assert len({*requeued}) == len(requeued)
    assert cursor.taken_total <= channel.topic.released_total
    end = channel.topic.released if cursor.priorities is None else channel.topic.released_total
    assert all(mark <= end for mark, _ in cursor._redeliveries._queue)
    check_rows(cursor._pending)
    check_places(channel)
    if channel.ordered is not None and channel.ordered.is_grouped:
        held = {row.sequence for page in cursor._pending.row_pages() for row in page}
        check_order(channel.ordered, held.union(channel.sequences_in_flight(), channel.held))


def check_places(channel: Channel) -> None:
    """Check that the part that has a message is that of its place, and that counts are those of places."""
    cursor, ordered = channel.cursor, channel.ordered
    assert cursor is not None
    rows = cursor._pending
    found: dict[Place, set[int]] = {place: set() for place in Place}
    for sequence, (_, _, place) in rows._rows.items():
        found[place].add(sequence)
    in_flight = [*channel.sequences_in_flight()]
    assert len({*in_flight}) == len(in_flight)
    assert found[Place.IN_FLIGHT] == rows._rows.keys() & in_flight
    assert found[Place.REQUEUED] == {sequence for _, sequence in cursor._redeliveries._queue}
    assert found[Place.DEFERRED] == {sequence for _, sequence in rows._soon} | {one for _, one, _ in rows._beyond}
    ready = set() if ordered is None else {*ordered._ready, *ordered._ready_again}
    assert found[Place.READY_HEAD] == ready
    assert found[Place.SET_ASIDE] == {*channel.set_aside} - ready
    assert found[Place.HELD] == {*channel.held}
    assert found[Place.WITHHELD] == {*(channel.withheld or ())}
    assert not found[Place.UNREAD] and not found[Place.FINISHED]
    counts = Counter(channel.places())
    assert all(counts[place] == len(found[place]) for place in (Place.READY_HEAD, Place.SET_ASIDE, Place.HELD))
    assert counts[Place.WITHHELD] == len(found[Place.WITHHELD])
    assert counts[Place.IN_FLIGHT] == channel.in_flight_count == len(in_flight)
    assert counts[Place.DEFERRED] == channel.deferred_count
    with_rows = counts.total() - counts[Place.UNREAD] - counts[Place.IN_FLIGHT] + len(found[Place.IN_FLIGHT])
    assert with_rows == rows.count
    assert channel.depth == counts.total() - counts[Place.IN_FLIGHT] - counts[Place.DEFERRED]
    assert channel.unfinished_count == counts.total()


def check_rows(rows: PendingStore) -> None:
    """Check the counts of the rows that are not in memory, when what is saved is what is to be saved."""
    if rows._pages is None or rows.phase is Phase.SAVING or rows._emptied or rows._forgotten_from is not None:
        return
    saved = [row for row in rows._pages.read(BEFORE_ALL, 1 << 30)[0] if not rows._is_known(row.sequence)]
    assert rows._out_count == len(saved)
    assert rows._due_out_count == sum(row.due_ms <= rows._counted_ms for row in saved)
    assert all((row.due_ms, row.sequence) > rows._border for row in saved)


def check_order(ordered: OrderedPosition, held: set[int]) -> None:
    """Check that each unfinished message is in one place. `held` are those in flight, or with pending rows."""
    set_aside, not_set_aside = ordered._set_aside, ordered._not_set_aside
    entered = dict(ordered._entered)
    for run in ordered._runs.values():
        entered.update(zip(run.sequences, run.keys, strict=True))
    assert held >= entered.keys() | set_aside.keys()
    ready = [*ordered._ready, *ordered._ready_again]
    in_lines = [*chain.from_iterable(ordered._lines.values())]
    assert sorted([*ready, *in_lines]) == sorted([*set_aside, *not_set_aside])
    keys = {**entered, **set_aside}
    assert len(keys) == len(entered) + len(set_aside)
    assert all(line and {keys[sequence] for sequence in line} == {key} for key, line in ordered._lines.items())
    heads = Counter(keys[sequence] for sequence in chain(entered.keys() - not_set_aside, ready))
    del heads[None]
    assert heads == Counter(ordered._busy)

"""What is true of the position of a durable channel after each turn, whatever its policy."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from nsqtw.core.channel import Channel
from nsqtw.core.pending import PendingStore
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
    if channel.ordered is not None and channel.ordered.is_grouped:
        held = {row.sequence for page in cursor._pending.row_pages() for row in page}
        check_order(channel.ordered, held.union(channel.sequences_in_flight(), channel.leaving))


def check_rows(rows: PendingStore) -> None:
    """Check the counts of the rows that are not in memory, when what is saved is what is to be saved."""
    if rows._pages is None or rows._is_saving or rows._emptied or rows._forgotten_from is not None:
        return
    saved = [row for row in rows._pages.read((-1, -1), 1 << 30) if not rows._is_known(row.sequence)]
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

"""
The pending rows of one cursor: its unfinished messages below `next` that are not in flight on their first delivery.

Theory of operation. A row is in memory, in positions.db, or in both. Rows are ordered by `Key`: due time, then
sequence. There is a *border* in this order: deferred rows up to it are in memory, in the heap `_soon`; of the rows
behind it only a count is kept, `_out_count`. So memory holds the next thousand or two of a channel's deferred messages,
however many there are and however far ahead. Without a border everything is in memory: as long as there are few rows,
positions.db is never read.

    due:    past ........ now ........... border ...................... days ahead
            |  ready: the cursor's |  _soon  | only in positions.db: _out_count
            |  queue               |         | and until they are saved: _runs, _beyond

When `_soon` runs low, one page is read from behind the border, which moves ahead. When too many rows are before it, it
moves back: rows behind it that are saved leave memory, the others wait in `_beyond` for the end of their save. A long
run that is deferred together, behind the border, is not expanded into rows here: positions.db does that.

A row that becomes due stays saved as it is: its time shows that it is due when it is read back. When many become due
together the cursor takes them page by page; how many more are due is counted (`_due_out_count`), not read. What is not
saved yet is in order, too (`core.due_order`), so that a page of it is taken without a look at the rest.

Memory is authoritative: a row that is read back is ignored when memory knows its sequence, also as a finished one whose
removal is not saved yet. That is how a row behind the border is removed, too, when its message is cancelled: it counts
no more, and stays in positions.db until the next checkpoint (`_cancelled`).

A row in memory has the place of its message (`core.place`), and each change of it is checked. The saved row has none:
rows that are read page by page were deferred. What else must survive the process is in `_notes`: how a
message failed that is held, and that a delivery was interrupted by the end of the process. A note ends with the next
change of its row. The rows of held messages are read at the start, and stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, starmap
from math import inf

from attrs import frozen

from nsqtw.core.checkpoint import CursorState, HeldRow, PendingRow, PendingRun, Phase
from nsqtw.core.due_order import BEFORE_ALL, BEHIND_ALL, DueOrder, Key, Run, below
from nsqtw.core.place import Place, check_move
from nsqtw.core.positions import IPositions
from nsqtw.errors import BackendError

PAGE_ROWS = 1024
"""A page takes 1 to 3 ms to read."""

_NEW_ROW = (0, 0, Place.SET_ASIDE)
"""Never delivered, not deferred."""
_LATE_MS = 100
"""The maximum delay until rows that become due are noticed while there is no room for them."""


@frozen
class Pages:
    """The rows of one channel in positions.db."""

    _positions: IPositions
    _topic: str
    _channel: str

    def read(self, after: Key, limit: int) -> tuple[list[PendingRow], Key]:
        """Return the next ones behind `after`, and what to read behind then, as `IPositions.pending`. BackendError."""
        page: tuple[list[PendingRow], Key] = self._positions.pending(self._topic, self._channel, after, limit)
        return page

    def count(self, after: Key, until_ms: float, below: float) -> int:
        """Return how many there are behind `after` that are due then and under the sequence `below`. BackendError."""
        count: int = self._positions.count_pending(self._topic, self._channel, after, until_ms, below)
        return count

    def row(self, sequence: int) -> PendingRow | None:
        """The row of one message. BackendError."""
        row: PendingRow | None = self._positions.pending_row(self._topic, self._channel, sequence)
        return row

    def held(self) -> list[HeldRow]:
        """Return the details of the held rows. At the start. BackendError."""
        held: list[HeldRow] = self._positions.held(self._topic, self._channel)
        return held


def all_rows(positions: IPositions, topic: str, channel: str) -> Iterator[PendingRow]:
    """Return all saved pending rows of a channel in the order of their keys. BackendError."""
    pages = Pages(positions, topic, channel)
    after = BEFORE_ALL
    while after < BEHIND_ALL:
        page, after = pages.read(after, PAGE_ROWS)
        yield from page


class PendingStore:
    """
    The pending rows of one cursor. Without `pages` all of them stay in memory; with it, about `page_rows` to twice as
    many deferred ones.
    """

    def __init__(self, pages: Pages | None, page_rows: int) -> None:
        self._pages = pages
        self._page_rows = page_rows
        self._rows: dict[int, tuple[int, int, Place]] = {}  # sequence -> attempts, due in ms (0: not deferred), place
        self._notes: dict[
            int, HeldRow | None
        ] = {}  # sequence -> how it is held; None: interrupted, perhaps not in _rows
        self._soon: list[tuple[int, int]] = []
        self._border: Key = BEHIND_ALL
        self._beyond = DueOrder()
        self._runs = DueOrder()
        self._runs_in_checkpoint: list[PendingRun] = []
        self._runs_count = 0  # messages in both
        self._out_count = 0
        self._due_out_count = 0
        self._due_unsaved_count = 0  # the same of _runs and _beyond
        self._counted_ms = -1  # up to when what is due behind the border is counted
        self._out_lowest: float = inf
        # sequence -> whether the last checkpoint may have a row of it
        self._changed: dict[int, bool] = {}
        self._in_checkpoint: dict[int, bool] = {}  # what `_changed` was when the current checkpoint was made
        self._cancelled: dict[int, int] = {}  # sequence -> due in ms, of rows that the last checkpoint has
        self.phase = Phase.BETWEEN
        self.is_blocked = False
        """Whether the next rows cannot be read because they are being saved."""
        self._emptied = False
        self._forgotten_from: int | None = None
        """Saved rows from this sequence on are void; the next checkpoint removes them."""

    @property
    def has_rows_in_memory(self) -> bool:
        """Whether a row is in memory, perhaps in flight. `count` also counts runs and rows that are not."""
        return bool(self._rows)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self._rows) + self._runs_count + self._out_count

    @property
    def deferred_count(self) -> int:
        """The number of rows that are not due."""
        return len(self._soon) + self._beyond.count + self._runs_count + self._out_count - self.due_behind_count

    @property
    def due_behind_count(self) -> int:
        """The number of due rows behind the border, which `read_on` reads."""
        return self._due_out_count + self._due_unsaved_count

    @property
    def sequences(self) -> list[int]:
        """The sequences of the rows in memory, in any order."""
        return list(self._rows)

    @property
    def lowest(self) -> float:
        """A sequence under which there is no row but those that were there at start; infinity for none."""
        runs = chain((first for _, first, _ in self._runs), (run.first for run in self._runs_in_checkpoint))
        return min(chain(self._rows, runs, (self._out_lowest,)))

    def attempts(self, sequence: int) -> int:
        """Deliveries so far, of a row that is in memory."""
        return self._rows[sequence][0]

    def place(self, sequence: int) -> Place:
        """Return the place of a message whose row is in memory."""
        return self._rows[sequence][2]

    def put(self, sequence: int, attempts: int, place: Place, held: HeldRow | None = None) -> None:
        """A message has moved to a place where it is not deferred. `held`: a restart keeps it held."""
        self._put(sequence, attempts, 0, place)
        if held is not None:
            self._notes[sequence] = held

    def interrupt(self, sequences: Iterable[int]) -> None:
        """The last deliveries of these messages have not failed."""
        self._notes.update(dict.fromkeys(sequences))

    def is_interrupted(self, sequence: int) -> bool:
        """Return whether the last delivery of a message has not failed, though it is over."""
        return sequence in self._notes and self._notes[sequence] is None

    @property
    def interrupted(self) -> list[int]:
        """The sequences for which `is_interrupted` is true, in any order."""
        return [sequence for sequence, held in self._notes.items() if held is None]

    def move(self, sequence: int, place: Place) -> None:
        """A message whose row is in memory has moved, and its row stays as it is saved."""
        row = self._rows.get(sequence)
        assert row is not None, f"message {sequence} is {place}, and has no row"
        attempts, due_ms, before = row
        check_move(before, place)
        self._rows[sequence] = (attempts, due_ms, place)

    def set_aside(self, sequences: Iterable[int]) -> None:
        """Messages that were never delivered are set aside."""
        changed = self._changed
        assert self._rows.keys().isdisjoint(sequences), "a message has a row, and is read"
        for sequence in sequences:
            changed.setdefault(sequence, False)
        self._rows.update(dict.fromkeys(sequences, _NEW_ROW))

    def defer(self, sequence: int, attempts: int, due_ms: int) -> None:
        """The message is to wait."""
        self._put(sequence, attempts, due_ms, Place.DEFERRED)
        if (due_ms, sequence) > self._border:
            self._beyond.add(due_ms, sequence)
        else:
            heappush(self._soon, (due_ms, sequence))
            self._make_room()

    def defer_run(self, first: int, count: int, due_ms: int) -> None:
        """Messages that were never delivered are deferred."""
        if (due_ms, first) <= self._border and count > self._page_rows and self._pages is not None:
            self._move_border_back((due_ms, first - 1))
        end = behind = first + count
        if (due_ms, end - 1) > self._border:
            behind = first if due_ms > self._border[0] else max(first, int(self._border[1]) + 1)
            self._runs.add(due_ms, behind, end - behind)
            self._runs_count += end - behind
        row = (0, due_ms, Place.DEFERRED)
        for sequence in range(first, behind):
            self._changed[sequence] = False
            self._rows[sequence] = row
            heappush(self._soon, (due_ms, sequence))
        self._make_room()

    def finish(self, sequence: int, place: Place = Place.FINISHED) -> bool:
        """
        Remove a row: its message is finished, or in flight for the first time. Returns whether there was one, in
        memory: a finished message was in flight.
        """
        row = self._rows.pop(sequence, None)
        if row is None:
            return False
        check_move(row[2], place)
        if self._notes:
            self._notes.pop(sequence, None)
        if self._changed.get(sequence) is False:
            del self._changed[sequence]
        else:
            self._changed[sequence] = True
        return True

    def cancel(self, sequence: int, now_ms: int) -> bool:
        """
        Remove the row of a message that was never delivered and is not due. Returns whether there was one.
        BackendError.
        """
        assert self.phase is Phase.BETWEEN, "a message is cancelled during a checkpoint"
        if self._runs.remove(sequence, now_ms):
            self._runs_count -= 1
            return True
        attempts, due_ms, _ = self._rows.get(sequence, _NEW_ROW)
        if sequence not in self._rows and self._out_count and self._pages is not None and not self._is_known(sequence):
            row = self._pages.row(sequence)
            attempts, due_ms = (0, 0) if row is None else (row.attempts, row.due_ms)
        if attempts or due_ms <= now_ms:
            return False
        if self.finish(sequence):
            if not self._beyond.remove(sequence, now_ms):
                self._soon.remove((due_ms, sequence))
                heapify(self._soon)
        else:
            self._out_count -= 1
            self._changed[sequence] = True
            self._cancelled[sequence] = due_ms
        return True

    def take_due(self, now_ms: int) -> list[int]:
        """The sequences of the messages in memory that have become due, in the order of their times."""
        due = []
        while self._soon and self._soon[0][0] <= now_ms:
            due.append(heappop(self._soon)[1])
            self.move(due[-1], Place.REQUEUED)
        return due

    def take_counted(self) -> list[int]:
        """Like `take_due`, for rows that were counted as due while they were not in memory."""
        return self.take_due(self._counted_ms)

    def drop_soonest(self, count: int) -> list[int]:
        """
        Remove up to `count` deferred rows, those first that are due first. Returns their sequences. BackendError, and
        none is removed.
        """
        dropped: list[int] = []
        try:
            while len(dropped) < count and (self._soon or self.read_on()):
                if self._soon:
                    dropped.append(heappop(self._soon)[1])
                    self.finish(dropped[-1])
        except BackendError:
            if not dropped:
                raise
        return dropped

    @property
    def is_low(self) -> bool:
        """Whether more rows should be read: few deferred ones are left in memory, and there are others."""
        return self._border != BEHIND_ALL and len(self._soon) < -(-self._page_rows // 2)

    def read_on(self) -> bool:
        """
        Move the border by a page of rows. False when nothing is behind it, or what comes next is being saved.
        BackendError.
        """
        limit: Key = BEHIND_ALL
        for run in self._runs_in_checkpoint:  # positions.db may have them already, or not yet
            limit = min(limit, (run.due_ms, run.first - 1))
        self.is_blocked = limit <= self._border < BEHIND_ALL
        if self._border >= limit or self._pages is None:
            return False
        page, end = self._pages.read(self._border, self._page_rows) if self._out_count else ([], BEHIND_ALL)
        border = min(limit, end)
        beyond, border = self._beyond.take(border, self._page_rows)
        runs, border = self._runs.take(border, self._page_rows)
        for due_ms, sequence, _ in beyond:
            if (due_ms, sequence) <= border:
                self._soon.append((due_ms, sequence))
            else:
                self._beyond.add(due_ms, sequence)
        for due_ms, first, count in runs:
            self._runs_count -= count
            for sequence in range(first, first + count):
                self._put(sequence, 0, due_ms, Place.DEFERRED)
                self._soon.append((due_ms, sequence))
        self._take_rows(page, border)
        heapify(self._soon)
        self._border = border
        if border[0] > self._counted_ms:
            self._due_out_count = 0  # as it is already, unless rows were lost on the medium: they are not looked for
        if border == BEHIND_ALL:
            self._out_count = 0
            self._out_lowest = inf
        self._make_room()
        self._count_unsaved()
        return True

    def count_due(self, now_ms: int) -> None:
        """Count the rows behind the border that have become due by now. BackendError."""
        after = max(self._border, (self._counted_ms, inf))
        if self._pages is None or after[0] > now_ms or not self._out_count:
            self._counted_ms = max(self._counted_ms, now_ms)
        elif self.phase is Phase.BETWEEN and self._forgotten_from is None:  # a save adds and removes rows
            counted = self._count_out(after, now_ms)
            self._counted_ms = now_ms
            self._due_out_count = min(self._out_count, self._due_out_count + counted)
        self._count_unsaved()

    def next_due_ms(self, now_ms: int) -> int | None:
        """Return when the next row becomes due; None for never."""
        if self._soon:
            return self._soon[0][0]
        # Nothing in memory waits, and there was no room for more, or what comes next is being saved.
        return None if self._border == BEHIND_ALL else max(now_ms + _LATE_MS, int(self._border[0]))

    def forget(self) -> None:
        """There are no rows any more."""
        self._rows.clear()
        self._notes.clear()
        self._soon.clear()
        self._beyond, self._runs = DueOrder(), DueOrder()
        self._runs_in_checkpoint, self._runs_count = [], 0
        self._border, self._out_lowest = BEHIND_ALL, inf
        self._out_count = self._due_out_count = self._due_unsaved_count = 0
        self._changed.clear()
        self._cancelled.clear()
        self._in_checkpoint.clear()
        self.is_blocked = False
        self._emptied = True

    def forget_from(self, start: int) -> None:
        """Drop the rows from a sequence on. BackendError, and nothing is changed."""
        assert self.phase is Phase.BETWEEN, "rows are forgotten during a checkpoint"
        self._out_count, self._due_out_count = self._out_below(start)
        self._rows = {sequence: row for sequence, row in self._rows.items() if sequence < start}
        self._notes = {sequence: held for sequence, held in self._notes.items() if sequence < start}
        self._soon = [entry for entry in self._soon if entry[1] < start]
        heapify(self._soon)
        self._beyond.replace(below(self._beyond, start))
        self._changed = {sequence: state for sequence, state in self._changed.items() if sequence < start}
        self._runs.replace(below(self._runs, start))
        self._runs_count = self._runs.count
        self._count_unsaved()
        self._forgotten_from = start if self._forgotten_from is None else min(start, self._forgotten_from)

    def waiting_below(self, start: int) -> tuple[int, int]:
        """
        Return what `forget_from` would leave, without changing anything: how many rows are due behind the border, and
        how many are deferred. BackendError.
        """
        assert self.phase is Phase.BETWEEN, "rows are counted during a checkpoint"
        out, due = self._out_below(start)
        deferred = sum(sequence < start for _, sequence in self._soon) + out - due
        for due_ms, _, count in below(chain(self._runs, self._beyond), start):
            if self._border[0] <= self._counted_ms and due_ms <= self._counted_ms:
                due += count
            else:
                deferred += count
        return due, deferred

    def some(self, now_ms: int, *, deferred: bool, limit: int, after: Key = BEFORE_ALL) -> list[PendingRow]:
        """
        Return at most `limit` rows for inspection, by due time, those behind `after`: deferred ones, or the ready ones
        and those in flight again. Of unsaved runs only as many as fit. BackendError.
        """
        rows = [PendingRow(sequence, attempts, due) for sequence, (attempts, due, _) in self._rows.items()]
        for run in chain(starmap(_pending_run, self._runs), self._runs_in_checkpoint):
            first = max(run.first, int(after[1]) + 1) if run.due_ms == after[0] else run.first
            count = min(run.first + run.count - first, limit)
            rows += [PendingRow(first + number, 0, run.due_ms) for number in range(count)]
        in_memory = {row.sequence for row in rows} | self._in_checkpoint.keys() | self._changed.keys()
        if self._pages is not None and self._out_count:
            rows += self._some_out(in_memory, max(after, (now_ms, inf) if deferred else BEFORE_ALL), limit)
        rows = sorted((row for row in rows if _key(row) > after), key=_key)
        return [row for row in rows if (row.due_ms > now_ms) == deferred][:limit]

    def row_pages(self) -> Iterator[list[PendingRow]]:
        """
        Return the rows there are now, in memory and in positions.db, in any order: not the unsaved ones of runs, which
        were never delivered. They come page by page, each read when it is asked for, which may be in later turns. What
        is finished between two pages may come nevertheless. BackendError.
        """
        known = self._rows.keys() | self._in_checkpoint.keys() | self._changed.keys() if self._out_count else None
        rows = [*self._rows], [*self._rows.values()]  # without a new object for each: a fifth of the time
        return self._pages_of(*rows, known, self._border, self._forgotten_from)

    # -- saving

    def changes(self, state: CursorState) -> None:
        """Add to a checkpoint what changed since the last call."""
        rows = self._rows
        state.dropped_rows = [sequence for sequence in self._changed if sequence not in rows]
        state.pending = [PendingRow(sequence, *rows[sequence][:2]) for sequence in self._changed if sequence in rows]
        state.runs = self._runs_in_checkpoint = [*starmap(_pending_run, self._runs)]
        state.pending_count = self.count
        noted = self._changed.keys() & self._notes.keys() if self._notes else ()
        state.held = [held for sequence in noted if (held := self._notes[sequence]) is not None]
        state.emptied, state.forgotten_from = self._emptied, self._forgotten_from
        self._in_checkpoint, self._changed = self._changed, {}
        self._runs = DueOrder()
        self._emptied = False
        self.phase = Phase.SAVING

    def end_checkpoint(self, state: CursorState, *, failed: bool) -> None:
        """The result of the last `changes` is saved; or it `failed`, and the next checkpoint must contain it."""
        in_checkpoint, self._in_checkpoint = self._in_checkpoint, {}
        runs, self._runs_in_checkpoint = self._runs_in_checkpoint, []
        self.phase, self.is_blocked = Phase.BETWEEN, False
        if failed:
            for sequence, may_be_saved in in_checkpoint.items():
                if may_be_saved or sequence in self._rows:
                    self._changed[sequence] = may_be_saved
                else:
                    self._changed.pop(sequence, None)
            for run in runs:
                self._runs.add(run.due_ms, run.first, run.count)
            self._emptied = self._emptied or state.emptied
            self._count_unsaved()
            return
        if self._forgotten_from == state.forgotten_from:
            self._forgotten_from = None
        self._cancelled = {sequence: due for sequence, due in self._cancelled.items() if sequence in self._changed}
        for run in runs:
            self._runs_count -= run.count
            self._let_out(run.first, run.count, run.due_ms)
        unsaved: list[Run] = []
        for row in self._beyond:
            due_ms, sequence, count = row
            if sequence in in_checkpoint and sequence not in self._changed:
                del self._rows[sequence]
                self._let_out(sequence, count, due_ms)
            else:
                unsaved.append(row)
        self._beyond.replace(unsaved)
        self._count_unsaved()

    def restore(self, state: CursorState) -> list[HeldRow]:
        """Become what was saved, which is read when it is needed. Returns what is held. BackendError."""
        self._emptied = state.emptied
        if not state.pending_count or self._pages is None:
            return []
        rows = self._pages.held()
        self._rows.update({row.sequence: (row.attempts, 0, Place.HELD) for row in rows})
        self._notes.update({row.sequence: row for row in rows})
        self.interrupt([sequence for sequence in state.interrupted if self._pages.row(sequence) is not None])
        self._border, self._out_count = BEFORE_ALL, max(0, state.pending_count - len(rows))
        return rows

    # -- inside

    def _put(self, sequence: int, attempts: int, due_ms: int, place: Place) -> None:
        row = self._rows.get(sequence)
        check_move(None if row is None else row[2], place)
        if sequence not in self._changed:
            self._changed[sequence] = row is not None
        self._rows[sequence] = (attempts, due_ms, place)
        if self._notes:
            self._notes.pop(sequence, None)

    def _let_out(self, first: int, count: int, due_ms: int) -> None:
        """Rows behind the border are saved and not in memory any more."""
        self._out_count += count
        if first < self._out_lowest:
            self._out_lowest = first
        if due_ms <= self._counted_ms:
            self._due_out_count += count

    def _make_room(self) -> None:
        """Leave half of what may be in memory when it is too much."""
        if len(self._soon) > 2 * self._page_rows and self._pages is not None:
            self._soon.sort()
            self._move_border_back(self._soon[self._page_rows - 1])

    def _move_border_back(self, border: Key) -> None:
        self._border = border
        self._soon.sort()
        while self._soon and self._soon[-1] > border:
            due_ms, sequence = self._soon.pop()
            if sequence in self._changed or sequence in self._in_checkpoint:
                self._beyond.add(due_ms, sequence)
            else:
                del self._rows[sequence]
                self._let_out(sequence, 1, due_ms)

    def _take_rows(self, page: Iterable[PendingRow], border: Key) -> None:
        """Take rows that were read, up to `border`."""
        for row in page:
            if _key(row) > border or self._is_known(row.sequence):
                continue
            self._rows[row.sequence] = (row.attempts, row.due_ms, Place.DEFERRED)
            self._soon.append((row.due_ms, row.sequence))
            self._out_count = max(0, self._out_count - 1)
            if row.due_ms <= self._counted_ms:
                self._due_out_count = max(0, self._due_out_count - 1)

    def _is_known(self, sequence: int) -> bool:
        """Return whether memory says what there is to say of a row that was read."""
        if self._forgotten_from is not None and sequence >= self._forgotten_from:
            return True
        return sequence in self._rows or sequence in self._changed or sequence in self._in_checkpoint

    def _out_below(self, start: int) -> tuple[int, int]:
        """
        Return how many rows under the sequence `start` are only in positions.db, and how many of them are counted as
        due. BackendError.
        """
        if not self._out_count or self._pages is None:
            return self._out_count, self._due_out_count
        due = self._count_out(self._border, self._counted_ms, start)
        out = self._count_out(BEFORE_ALL, inf, start)
        return out, min(due, out)

    def _count_out(self, after: Key, until_ms: float, below: float = inf) -> int:
        """
        Return how many rows behind `after`, due at `until_ms` and under the sequence `below` are only in positions.db;
        `after` is where everything starts, or not before the border. BackendError.
        """
        assert self._pages is not None
        count = self._pages.count(after, until_ms, below)
        if after[0] > 0:  # of what is saved behind the border memory knows at most what is not deferred, or cancelled
            cancelled = ((due_ms, sequence) for sequence, due_ms in self._cancelled.items())
            return count - sum(after < key and key[0] <= until_ms and key[1] < below for key in cancelled)
        unchanged = (sequence for sequence in self._rows if sequence not in self._changed)
        changed = (sequence for sequence, was_saved in self._changed.items() if was_saved)
        return max(0, count - sum(after < (0, sequence) and sequence < below for sequence in chain(unchanged, changed)))

    def _count_unsaved(self) -> None:
        """Count what is due behind the border and not saved yet, as far as it can be had now."""
        now_ms = self._counted_ms
        self._due_unsaved_count = 0
        if self._border[0] <= now_ms and not self._runs_in_checkpoint:
            self._due_unsaved_count = self._runs.count_due(now_ms) + self._beyond.count_due(now_ms)

    def _pages_of(
        self,
        sequences: list[int],
        rows: list[tuple[int, int, Place]],
        known: set[int] | None,
        after: Key,
        stop: int | None,
    ) -> Iterator[list[PendingRow]]:
        """
        Iterate over pages of the `rows` of `sequences` and, unless `known` is None, of saved rows behind `after`: those
        that are not known and are under the sequence `stop`.
        """
        for start in range(0, len(rows), PAGE_ROWS):
            part = slice(start, start + PAGE_ROWS)
            pairs = zip(sequences[part], rows[part], strict=True)
            yield [PendingRow(sequence, attempts, due_ms) for sequence, (attempts, due_ms, _) in pairs]
        if known is None or self._pages is None:
            return
        while after < BEHIND_ALL:
            page, after = self._pages.read(after, self._page_rows)
            yield [row for row in page if row.sequence not in known and (stop is None or row.sequence < stop)]

    def _some_out(self, excluded: set[int], after: Key, limit: float) -> Iterator[PendingRow]:
        """Rows that are only in positions.db."""
        assert self._pages is not None
        count = 0
        after = max(after, self._border)
        while count < limit and after < BEHIND_ALL:
            page, after = self._pages.read(after, self._page_rows)
            for row in page:
                if row.sequence not in excluded and not self._is_known(row.sequence):
                    count += 1
                    yield row


def _key(row: PendingRow) -> Key:
    return row.due_ms, row.sequence


def _pending_run(due_ms: int, first: int, count: int) -> PendingRun:
    return PendingRun(first, count, due_ms)

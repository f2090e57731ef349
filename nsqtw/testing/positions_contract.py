"""
Contract of stores of positions, as tests. Run as the contracts of backends in `contracts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from operator import attrgetter

import pytest
from zope.interface.verify import verifyObject

from nsqtw.core.checkpoint import (
    Checkpoint,
    CursorState,
    HeldRow,
    PendingRow,
    PendingRun,
    PublisherId,
    SavedState,
    TopicState,
    Waiting,
)
from nsqtw.core.due_order import BEFORE_ALL, BEHIND_ALL
from nsqtw.core.pending import all_rows
from nsqtw.core.positions import IPositions
from nsqtw.testing.contracts import OnDirectory


class PositionsContract(OnDirectory):
    """The duties of `IPositions`."""

    def make_positions(self, directory: str) -> IPositions:
        """Open the positions under test on a data path. Called again on the same one, after a close or without."""
        raise NotImplementedError

    @pytest.fixture
    def positions(self, directory: str) -> Iterator[IPositions]:
        positions = self.make_positions(directory)
        positions.load()
        yield positions
        positions.close(False)

    def reopened(self, positions: IPositions, directory: str, *, clean: bool = False) -> SavedState:
        """Return what the next process loads."""
        positions.close(clean)
        store = self.make_positions(directory)
        saved = self.loaded(store)
        store.close(False)
        return saved

    def loaded(self, positions: IPositions) -> SavedState:
        """Return the state with all pending rows."""
        saved: SavedState = positions.load()
        for topic in saved.topics:
            for cursor in topic.cursors:
                assert cursor.pending == []
                cursor.pending = sorted(all_rows(positions, topic.name, cursor.name), key=attrgetter("sequence"))
        return saved

    def test_it_provides_the_interface(self, positions: IPositions) -> None:
        """It has what the interface names."""
        assert verifyObject(IPositions, positions)

    def test_a_new_data_path_has_nothing(self, directory: str) -> None:
        """No block was ever reserved, so none is known."""
        positions = self.make_positions(directory)
        assert positions.load() == SavedState()
        positions.close(False)

    def test_everything_in_a_checkpoint_is_kept(self, positions: IPositions, directory: str) -> None:
        """Each field comes back as it was saved."""
        pending = [PendingRow(3, 2, 0), PendingRow(5, 65535, 1_700_000_000_000)]
        first = [8, 6, 7]
        cursors = [
            CursorState(
                "c1",
                paused=True,
                next=9,
                taken_total=8,
                first_deliveries=first,
                pending=pending,
                pending_count=2,
                replays=12,
                policy={"max_attempts": 5, "requeue_delay": 1.5, "overflow": "drop_oldest"},
                positions=[11, 10, 9],
                class_depths=[2, 0, 1, 20],
            ),
            CursorState("c2#ephemeral"),
        ]
        topic = TopicState(
            "t",
            paused=True,
            released=20,
            released_total=20,
            end=(1 << 53) - 1,
            put_total=25,
            dropped=[(10, 12), (15, 20)],
            waiting=[Waiting(21, 3, 60_000), Waiting(25, 1, 1 << 40)],
            durability="fsync",
            retention_time=90061.5,
            retention_bytes=1 << 40,
            floor=7,
            marks=[(7, 1_700_000_000_000, 0), (30, 1_700_000_000_001, 1 << 50)],
            runs=[(7, 0), (15, 5), (30, 20)],
            policy={"message_ttl": 90061.5},
            cursors=cursors,
        )
        positions.save(Checkpoint(topics=[topic, TopicState("empty")]))
        saved = self.reopened(positions, directory)
        assert saved == SavedState(topics=[topic, TopicState("empty")])

    def test_a_checkpoint_changes_only_what_is_in_it(self, positions: IPositions, directory: str) -> None:
        """Topics and cursors that are not named stay; pending rows are saved as differences."""
        rows = [PendingRow(sequence, 1, 0) for sequence in (1, 2, 3)]
        cursors = [CursorState("c", next=5, pending=rows, pending_count=3), CursorState("d", next=4)]
        first = TopicState("t", released=9, cursors=cursors)
        positions.save(Checkpoint(topics=[first, TopicState("other", paused=True)]))
        change = CursorState(
            "c", next=7, pending=[PendingRow(2, 5, 8), PendingRow(6, 1, 0)], dropped_rows=[1, 99], pending_count=3
        )
        positions.save(Checkpoint(topics=[TopicState("t", released=11, cursors=[change])]))
        pending = [PendingRow(2, 5, 8), PendingRow(3, 1, 0), PendingRow(6, 1, 0)]
        cursor = CursorState("c", next=7, pending=pending, pending_count=3)
        topic = TopicState("t", released=11, cursors=[cursor, CursorState("d", next=4)])
        saved = self.reopened(positions, directory)
        assert saved == SavedState(topics=[topic, TopicState("other", paused=True)])

    def test_the_settings_of_a_policy_are_replaced_and_forgotten(self, positions: IPositions, directory: str) -> None:
        """A checkpoint has all settings of a topic or channel; one that is deleted has none when it is there again."""
        for policy in ({"max_depth": 5, "max_rate": 0.5}, {"max_depth": 6}):
            positions.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", policy=policy)])]))
        assert self.reopened(positions, directory).topics[0].cursors[0].policy == {"max_depth": 6}
        positions = self.make_positions(directory)
        positions.load()
        positions.save(Checkpoint(deleted_channels=[("t", "c")]))
        positions.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c")])]))
        assert self.reopened(positions, directory).topics[0].cursors[0].policy == {}

    def test_an_emptied_channel_has_only_its_new_rows(self, positions: IPositions, directory: str) -> None:
        """Emptying is applied before the rows of the same checkpoint."""
        rows = [PendingRow(sequence, 1, 0) for sequence in range(5)]
        positions.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", pending=rows, pending_count=5)])]))
        emptied = CursorState("c", next=9, pending=[PendingRow(8, 1, 0)], emptied=True, pending_count=1)
        positions.save(Checkpoint(topics=[TopicState("t", cursors=[emptied])]))
        saved = self.reopened(positions, directory)
        assert saved.topics[0].cursors == [CursorState("c", next=9, pending=[PendingRow(8, 1, 0)], pending_count=1)]

    def test_a_channel_that_was_moved_has_no_rows_beyond_the_place_but_new_ones(
        self, positions: IPositions, directory: str
    ) -> None:
        """Removals are applied before the rows of the same checkpoint. Other channels keep theirs."""
        rows = [PendingRow(sequence, 1, 0) for sequence in range(5)]
        cursors = [CursorState(name, pending=rows, pending_count=5) for name in "cd"]
        positions.save(Checkpoint(topics=[TopicState("t", cursors=cursors)]))
        moved = CursorState("c", next=3, pending=[PendingRow(8, 1, 0)], forgotten_from=3, pending_count=4)
        positions.save(Checkpoint(topics=[TopicState("t", cursors=[moved])]))
        assert positions.count_pending("t", "c", BEFORE_ALL, inf, inf) == 4
        saved = self.reopened(positions, directory)
        kept = [*rows[:3], PendingRow(8, 1, 0)]
        assert saved.topics[0].cursors == [CursorState("c", next=3, pending=kept, pending_count=4), cursors[1]]

    def test_deleted_and_created_again_in_one_checkpoint(self, positions: IPositions, directory: str) -> None:
        """Deletions come first; nothing of the old one is left; unknown names do no harm."""
        pending = [PendingRow(1, 1, 0)]
        old = [CursorState(name, next=5, pending=pending, pending_count=1, first_deliveries=[4]) for name in "xy"]
        positions.save(Checkpoint(topics=[TopicState("gone", cursors=old), TopicState("t", cursors=old)]))
        positions.save(
            Checkpoint(
                deleted_topics=["gone", "never"],
                deleted_channels=[("t", "x"), ("t", "never"), ("never", "x")],
                topics=[TopicState("gone", cursors=[CursorState("x")]), TopicState("t", cursors=[CursorState("x")])],
            )
        )
        saved = self.reopened(positions, directory)
        topics = {topic.name: {cursor.name: cursor for cursor in topic.cursors} for topic in saved.topics}
        assert topics == {"gone": {"x": CursorState("x")}, "t": {"x": CursorState("x"), "y": old[1]}}

    def test_reserved_blocks_are_kept(self, positions: IPositions, directory: str) -> None:
        """Reservations survive without a checkpoint. A few more blocks may be taken."""
        highest = (1 << 33) + 64
        positions.reserve(5)
        positions.reserve(highest)
        positions.reserve(7)  # of a thread that was slower
        next_block = self.reopened(positions, directory).next_block
        assert next_block is not None and highest <= next_block < highest + 10

    def test_a_clean_stop_is_recorded_once(self, positions: IPositions, directory: str) -> None:
        """The process after it has not stopped yet."""
        assert self.reopened(positions, directory, clean=True).clean_stop
        store = self.make_positions(directory)
        assert not store.load().clean_stop
        store.close(False)

    def test_unfinished_is_what_some_channel_still_wants(self, positions: IPositions) -> None:
        """
        Unfinished below the lowest `next`: first deliveries and pending rows of all channels, each once, ascending.
        """
        behind = CursorState(
            "behind", next=100, first_deliveries=[99, 7], pending=[PendingRow(3, 1, 0), PendingRow(50, 2, 9)]
        )
        ahead = CursorState(
            "ahead", next=500, first_deliveries=[300, 7], pending=[PendingRow(50, 1, 0), PendingRow(4, 1, 0)]
        )
        positions.save(Checkpoint(topics=[TopicState("t", released=600, cursors=[behind, ahead])]))
        assert self.unfinished(positions, "t") == (100, [3, 4, 7, 50, 99])
        positions.save(Checkpoint(deleted_channels=[("t", "behind")]))
        assert self.unfinished(positions, "t") == (500, [4, 7, 50, 300])
        positions.save(Checkpoint(topics=[TopicState("t", released=600, floor=50)]))
        assert self.unfinished(positions, "t") == (50, [4, 7]), "nothing is trimmed that is retained"
        positions.save(Checkpoint(deleted_channels=[("t", "ahead")], topics=[TopicState("t", released=600, floor=700)]))
        assert self.unfinished(positions, "t") == (600, [])
        assert positions.unfinished("unknown") is None

    def test_unfinished_of_many_pending_rows(self, positions: IPositions) -> None:
        """More than fit into one page of anything."""
        pending = [PendingRow(sequence, 1, 0) for sequence in range(0, 30_000, 3)]
        cursors = [CursorState("c", next=20_000, pending=pending), CursorState("d", next=25_000, pending=pending[::2])]
        positions.save(Checkpoint(topics=[TopicState("t", cursors=cursors)]))
        assert self.unfinished(positions, "t") == (20_000, list(range(0, 20_000, 3)))

    def test_pending_rows_come_in_pages_by_due_time(self, positions: IPositions) -> None:
        """Then by sequence; a page starts behind a row, or behind all rows of a time."""
        rows = [
            PendingRow(7, 1, 0),
            PendingRow(9, 0, 30),
            PendingRow(2, 0, 30),
            PendingRow(5, 3, 20),
            PendingRow(1, 0, 1 << 47),
        ]
        other = [PendingRow(3, 1, 25)]
        cursors = [CursorState("c", pending=rows, pending_count=5), CursorState("d", pending=other, pending_count=1)]
        positions.save(
            Checkpoint(topics=[TopicState("t", cursors=cursors), TopicState("u", cursors=[CursorState("c")])])
        )
        ordered = [rows[0], rows[3], rows[2], rows[1], rows[4]]
        assert positions.pending("t", "c", BEFORE_ALL, 10) == (ordered, BEHIND_ALL)
        assert positions.pending("t", "c", BEFORE_ALL, 2) == (ordered[:2], (20, 5))
        assert positions.pending("t", "c", (20, 5), 2) == (ordered[2:4], (30, 9))
        assert positions.pending("t", "c", (30, 2), 9) == (ordered[3:], BEHIND_ALL)
        assert positions.pending("t", "c", (30, inf), 9) == (ordered[4:], BEHIND_ALL)
        assert positions.pending("t", "c", BEHIND_ALL, 9) == ([], BEHIND_ALL)
        assert positions.pending("t", "d", BEFORE_ALL, 9) == (other, BEHIND_ALL)
        for unknown in (("u", "c"), ("u", "x"), ("x", "c")):
            assert positions.pending(*unknown, BEFORE_ALL, 9) == ([], BEHIND_ALL)
            assert positions.count_pending(*unknown, BEFORE_ALL, 9, inf) == 0

    def test_pending_rows_are_counted_by_due_time(self, positions: IPositions) -> None:
        """All bounds are as documented: behind a row, up to a time, below a sequence."""
        rows = [PendingRow(sequence, 1, due_ms) for sequence, due_ms in ((1, 0), (2, 10), (4, 10), (3, 11), (5, 30))]
        positions.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", pending=rows, pending_count=5)])]))
        counts = [positions.count_pending("t", "c", BEFORE_ALL, until, inf) for until in (0, 9, 10, 29, 30, inf)]
        assert counts == [1, 1, 3, 4, 5, 5]
        assert positions.count_pending("t", "c", (10, 2), 11, inf) == 2
        assert positions.count_pending("t", "c", (10, inf), 11, inf) == 1
        assert positions.count_pending("t", "c", (11, inf), 11, inf) == 0
        assert [positions.count_pending("t", "c", BEFORE_ALL, inf, below) for below in (1, 3, 9)] == [0, 2, 5]
        assert positions.count_pending("t", "c", (0, inf), 11, 4) == 2

    def test_runs_are_rows(self, positions: IPositions, directory: str) -> None:
        """Messages that were never delivered have pending rows."""
        runs = [PendingRun(10, 3, 500), PendingRun(20, 1, 400), PendingRun(30, 5000, 600)]
        positions.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", runs=runs, pending_count=5004)])]))
        (cursor,) = self.reopened(positions, directory).topics[0].cursors
        assert cursor.pending_count == 5004
        assert cursor.pending[:5] == [
            PendingRow(10, 0, 500),
            *(PendingRow(n, 0, 500) for n in (11, 12)),
            PendingRow(20, 0, 400),
            PendingRow(30, 0, 600),
        ]
        assert [row.sequence for row in cursor.pending[4:]] == list(range(30, 5030))
        assert {(row.attempts, row.due_ms) for row in cursor.pending[4:]} == {(0, 600)}

    def test_pending_rows_are_forgotten_from_a_sequence_on(self, positions: IPositions) -> None:
        """Rows of one channel are removed; the result is their number."""
        rows = [PendingRow(sequence, 1, 50 - sequence) for sequence in range(1, 6)]
        cursors = [CursorState(name, pending=rows, pending_count=5) for name in "cd"]
        positions.save(Checkpoint(topics=[TopicState("t", cursors=cursors)]))
        assert positions.forget_pending("t", "c", 4) == 2
        assert positions.forget_pending("t", "c", 4) == 0
        assert positions.forget_pending("t", "unknown", 4) == 0
        assert positions.pending("t", "c", BEFORE_ALL, 9) == (rows[2::-1], BEHIND_ALL)
        assert positions.pending("t", "d", BEFORE_ALL, 9) == (rows[::-1], BEHIND_ALL)

    def test_the_pending_row_of_one_message(self, positions: IPositions) -> None:
        """None without a row, of another message or of another channel."""
        rows = [PendingRow(3, 0, 77), PendingRow(5, 1, 0)]
        cursors = [CursorState("c", pending=rows, pending_count=2), CursorState("d")]
        positions.save(Checkpoint(topics=[TopicState("t", cursors=cursors)]))
        assert positions.pending_row("t", "c", 3) == rows[0]
        assert positions.pending_row("t", "c", 4) is None
        assert positions.pending_row("t", "d", 3) is None

    def test_publishers_ids_are_kept(self, positions: IPositions, directory: str) -> None:
        """By topic; one that is saved again replaces the one before."""
        ids = [PublisherId(bytes([number]) * 16, 1000 + number, number) for number in range(3)]
        other = PublisherId(ids[0].hash, 5, 6)
        newer = PublisherId(ids[1].hash, 2000, 9)
        saved = TopicState("t", publisher_ids=ids, dedupe_window_ms=5000)
        positions.save(Checkpoint(topics=[saved, TopicState("u", publisher_ids=[other], dedupe_window_ms=5000)]))
        positions.save(Checkpoint(topics=[TopicState("t", publisher_ids=[newer], dedupe_window_ms=5000)]))
        hashes = [one.hash for one in ids]
        positions.close(False)
        store = self.make_positions(directory)
        store.load()
        found = store.publisher_ids("t", [*hashes, b"?" * 16])
        assert sorted(found, key=attrgetter("hash")) == [ids[0], newer, ids[2]]
        assert store.publisher_ids("u", hashes) == [other]
        assert store.publisher_ids("unknown", hashes) == store.publisher_ids("t", []) == []
        store.close(False)

    def test_many_publishers_ids_are_found_at_once(self, positions: IPositions) -> None:
        """As many as a turn has."""
        ids = [PublisherId(b"%016d" % number, 1, number) for number in range(2500)]
        positions.put_publisher_ids("t", ids)
        found = positions.publisher_ids("t", [one.hash for one in ids])
        assert sorted(found, key=attrgetter("hash")) == ids

    def test_publishers_ids_are_forgotten_from_a_sequence_on(self, positions: IPositions) -> None:
        """Of one topic only."""
        ids = [PublisherId(b"%016d" % number, 1, number) for number in range(5)]
        positions.put_publisher_ids("t", ids)
        positions.put_publisher_ids("u", ids)
        positions.forget_publisher_ids("t", 3)
        hashes = [one.hash for one in ids]
        assert [len(positions.publisher_ids(topic, hashes)) for topic in ("t", "u")] == [3, 5]

    def test_publishers_ids_go_with_their_topic(self, positions: IPositions) -> None:
        """One that is created again has none of them."""
        ids = [PublisherId(b"x" * 16, 1, 1)]
        positions.save(Checkpoint(topics=[TopicState("t", publisher_ids=ids, dedupe_window_ms=5000)]))
        positions.save(Checkpoint(deleted_topics=["t"], topics=[TopicState("t", dedupe_window_ms=5000)]))
        assert positions.publisher_ids("t", [b"x" * 16]) == []

    def test_what_else_is_saved_of_pending_rows_goes_with_them(self, positions: IPositions, directory: str) -> None:
        """A held row is held until it changes or is removed. An interrupted one is saved as a whole."""
        rows = [PendingRow(sequence, 3, 0) for sequence in range(1, 7)]
        held = [HeldRow(sequence, 3, "requeued", "why", sequence) for sequence in range(1, 6)]
        cursor = CursorState("c", pending=rows, pending_count=6, held=held, interrupted=[6, 9])
        positions.save(Checkpoint(topics=[TopicState("t", cursors=[cursor, CursorState("d")])]))
        assert positions.held("t", "c") == held
        assert positions.held("t", "d") == positions.held("t", "x") == positions.held("x", "c") == []
        again = HeldRow(3, 4, "timed out", "", 0)
        change = CursorState("c", pending=[PendingRow(1, 3, 0), PendingRow(3, 4, 0)], dropped_rows=[2], held=[again])
        change.pending_count, change.interrupted = 5, [1]
        positions.save(Checkpoint(topics=[TopicState("t", cursors=[change])]))
        (cursor, _) = self.reopened(positions, directory).topics[0].cursors
        assert cursor.interrupted == [1]
        store = self.make_positions(directory)
        store.load()
        assert store.held("t", "c") == [again, *held[3:]]
        store.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", forgotten_from=5)])]))
        assert store.held("t", "c") == [again, held[3]]
        assert store.forget_pending("t", "c", 4) == 1
        assert store.held("t", "c") == [again]
        store.save(Checkpoint(topics=[TopicState("t", cursors=[CursorState("c", emptied=True)])]))
        assert store.held("t", "c") == []
        store.close(False)

    def test_delays_are_forgotten(self, positions: IPositions) -> None:
        """Rows of all channels become due; the rest of the rows stays."""
        cursors = [
            CursorState(name, pending=[PendingRow(2, 7, 50), PendingRow(3, 1, 0)], pending_count=2) for name in "cd"
        ]
        positions.save(Checkpoint(topics=[TopicState("t", cursors=cursors)]))
        positions.forget_delays()
        for name in "cd":
            assert positions.pending("t", name, BEFORE_ALL, 9)[0] == [PendingRow(2, 7, 0), PendingRow(3, 1, 0)]

    def test_the_shift_of_the_wall_clock_is_kept(self, positions: IPositions, directory: str) -> None:
        """Until another one is saved."""
        positions.save(Checkpoint(wall_shift_ms=-5_000))
        positions.save(Checkpoint(topics=[TopicState("t")]))
        assert self.reopened(positions, directory).wall_shift_ms == -5_000

    def unfinished(self, positions: IPositions, topic: str) -> tuple[int, list[int]]:
        """The answer of `unfinished`, read to its end."""
        answer = positions.unfinished(topic)
        assert answer is not None
        below, sequences = answer
        return below, list(sequences)

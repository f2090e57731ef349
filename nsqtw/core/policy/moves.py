"""
Messages that have moved to another topic, as a start finds them: dead letters, and dead letters that were put back.

A moved message is stored in the topic where it went before the checkpoint is saved in which it is finished where it
came from. So a start reads what the log of each topic has beyond its saved end, and finishes what the messages there
replace. All of it is saved at once: a crash during the start changes nothing. The ends of the topics stay as they were
saved: the next start finds again what is beyond them, publishers' ids too.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from nsqtw.core.checkpoint import Checkpoint, TopicState
from nsqtw.core.pending import all_rows
from nsqtw.core.policy.letter import origin
from nsqtw.core.positions import IPositions
from nsqtw.core.segment import Segment


class Moves:
    """The moves that the logs of all topics tell."""

    def __init__(self) -> None:
        self._finished: dict[tuple[str, str], set[int]] = {}
        """Sequences that are to be finished, by topic and channel."""
        self._saved: dict[str, TopicState] = {}
        """The topics up to their saved ends."""

    def add(self, state: TopicState) -> None:
        """Take a topic, before anything beyond its saved end is added to it."""
        self._saved[state.name] = evolve(state, waiting=list(state.waiting))

    def read(self, segments: Iterable[Segment]) -> None:
        """Take messages beyond the saved end of a topic."""
        for segment in segments:
            for encoded in segment.headers or ():
                found = origin(encoded, segment.channel) if encoded else None
                if found is not None:
                    topic, channel, sequence = found
                    self._finished.setdefault((topic, channel), set()).add(sequence)

    def finish(self, positions: IPositions) -> None:
        """Finish the messages that have moved, and save that. BackendError."""
        changed: dict[str, TopicState] = {}
        for (topic, channel), sequences in self._finished.items():
            state = self._saved.get(topic) or TopicState(topic)
            for cursor in state.cursors:
                if cursor.name != channel:
                    continue
                rows = all_rows(positions, topic, channel) if cursor.pending_count else ()
                dropped = {row.sequence for row in rows} & sequences
                kept = [sequence for sequence in cursor.first_deliveries if sequence not in sequences]
                if dropped or len(kept) < len(cursor.first_deliveries):
                    cursor.dropped_rows, cursor.first_deliveries = sorted(dropped), kept
                    cursor.pending_count = max(0, cursor.pending_count - len(dropped))
                    changed[topic] = state
        if changed:
            positions.save(Checkpoint(topics=[*changed.values()]))
        for state in changed.values():
            for cursor in state.cursors:
                cursor.dropped_rows = []

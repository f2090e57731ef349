"""
The sequences of the messages that a topic has in storage: runs of consecutive ones, a few numbers for a million
messages of the same channels and priority.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import groupby

from attrs import define, field

from nsqtw.core.segment import Segment
from nsqtw.message_headers import HIGH, LOW, class_of


class Sequences:
    """A set of sequences that is filled in ascending order."""

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._ends = array("Q")
        self._before = array("Q")
        """The number of sequences in the runs before."""

    def __len__(self) -> int:
        return self._before[-1] + self._ends[-1] - self._firsts[-1] if self._firsts else 0

    def add(self, first: int, end: int) -> None:
        """Add those from `first` up to `end`, which is not one of them."""
        if self._ends and self._ends[-1] == first:
            self._ends[-1] = end
        else:
            self._before.append(len(self))
            self._firsts.append(first)
            self._ends.append(end)

    def count(self, low: int, high: int) -> int:
        """Return how many are at least `low` and below `high`."""
        return max(0, self._below(high) - self._below(low))

    def has(self, sequence: int) -> bool:
        return self.count(sequence, sequence + 1) == 1

    def runs(self) -> list[tuple[int, int]]:
        """The runs: the first sequence of each, and one past its last."""
        return list(zip(self._firsts, self._ends, strict=True))

    def _below(self, sequence: int) -> int:
        run = bisect_left(self._firsts, sequence) - 1
        return self._before[run] + min(sequence, self._ends[run]) - self._firsts[run] if run >= 0 else 0


@define
class ChannelSequences:
    """Sequences of messages, apart by the channel that gets them; "" for all channels."""

    of: dict[str, Sequences] = field(factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.of.values()))

    def add(self, first: int, end: int, channel: str) -> None:
        """Add those from `first` up to `end`, which is not one of them."""
        self.of.setdefault(channel, Sequences()).add(first, end)

    def update(self, other: ChannelSequences) -> None:
        """Add all of another, which are behind these."""
        for channel, sequences in other.of.items():
            for first, end in sequences.runs():
                self.add(first, end, channel)

    def count(self, low: int, high: int) -> int:
        """Return how many are at least `low` and below `high`."""
        return sum(sequences.count(low, high) for sequences in self.of.values())

    def count_for(self, channel: str, low: int, high: int) -> int:
        """Return how many of these a channel gets."""
        return sum(self.of[name].count(low, high) for name in ("", channel) if name in self.of)

    def has(self, sequence: int, channel: str) -> bool:
        """Return whether a channel gets a message."""
        return self.count_for(channel, sequence, sequence + 1) == 1


@define
class ClassSequences:
    """Sequences of messages that have a priority other than normal, apart by their class."""

    of: dict[int, ChannelSequences] = field(factory=lambda: {HIGH: ChannelSequences(), LOW: ChannelSequences()})

    def add(self, segment: Segment) -> None:
        """Add the messages of a segment. Those that were published with a delay have no class."""
        if segment.headers is None or segment.delay_ms:
            return
        end = segment.first
        for number, run in groupby(map(class_of, segment.headers)):
            start, end = end, end + len([*run])
            if number in self.of:
                self.of[number].add(start, end, segment.channel)

    def update(self, other: ClassSequences) -> None:
        """Add all of another, which are behind these."""
        for number, sequences in other.of.items():
            self.of[number].update(sequences)

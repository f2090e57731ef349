"""
The order of a topic's messages in its log.

A channel that wants all messages from some position of the log on needs no rows for them: its cursor stands there.
Every other message it wants costs a pending row, in memory as long as the message lives. nsqd promises no order of
messages, so the log may be sorted in a way that needs few of them.

Messages are of one *kind* when the same channels want them for the first time. Kinds get ranks, the positions of their
messages in the log, from the end on: at each step the next kind is the cheapest one, whose messages are not wanted by
channels with few messages left. So with nested sets, as when one channel is behind the other, there are no rows at all.
Within a kind messages stay in the order of publication.

Rank 0, at the beginning, is for all kinds that are too rare to be considered, and for messages that channels want only
again: these need their row in any case, which has their attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

Kind = tuple[int, ...]
"""The numbers of the channels that want a message for the first time, ascending."""

OTHER: Kind = ()
"""The kind of messages that no channel wants for the first time, and of those that do not matter."""

MAX_KINDS = 256
"""So many are ranked."""
_MAX_COUNTED = 65_536


@frozen
class Order:
    """The `kinds` by rank, of which the first is OTHER, and the rank from which on a channel wants everything."""

    kinds: Sequence[Kind]
    counts: Sequence[int]
    """The number of messages of each kind."""
    ranks: Mapping[Kind, int]
    whole_from: Mapping[int, int]
    """By channel; `len(kinds)` for none."""

    def rank(self, kind: Kind) -> int:
        return self.ranks.get(kind, 0)

    def left(self, channel: int) -> int:
        """Return how many messages there are from where on the channel wants all of them."""
        return sum(self.counts[self.whole_from[channel] :])


def count(kinds: Iterable[Kind]) -> dict[Kind, int]:
    """Return how often each kind comes. When there are very many, those seen last count as OTHER."""
    counts: dict[Kind, int] = {OTHER: 0}
    for kind in kinds:
        if kind in counts:
            counts[kind] += 1
        elif len(counts) < _MAX_COUNTED:
            counts[kind] = 1
        else:
            counts[OTHER] += 1
    return counts


def arrange(counts: Mapping[Kind, int], unread: Mapping[int, int]) -> Order:
    """
    The order for kinds that come so often. `unread` has every channel, with the number of messages it has not read of
    what is in the log already, below all ranks.
    """
    ranked = sorted((kind for kind in counts if kind != OTHER), key=lambda kind: -counts[kind])[:MAX_KINDS]
    unmatched = sum(counts.values()) - sum(counts[kind] for kind in ranked)
    remaining = dict(unread)
    for kind in ranked:
        for channel in kind:
            remaining[channel] += counts[kind]
    alive = set(unread)
    backwards: list[Kind] = []
    whole_since: dict[int, int] = {}
    while ranked:
        # Of two that cost the same the larger one: it is first, for the list is sorted so.
        kind = min(ranked, key=lambda kind: sum(remaining[channel] for channel in alive.difference(kind)))
        ranked.remove(kind)
        for channel in alive.difference(kind):
            whole_since[channel] = len(backwards)
        alive.intersection_update(kind)
        backwards.append(kind)
        for channel in kind:
            remaining[channel] -= counts[kind]
    kinds = [OTHER, *reversed(backwards)]
    whole_from = {channel: len(kinds) - since for channel, since in whole_since.items()}
    for channel in alive:
        whole_from[channel] = 1 if unmatched else 0
    return Order(
        kinds,
        [unmatched, *(counts[kind] for kind in kinds[1:])],
        {kind: rank for rank, kind in enumerate(kinds)},
        whole_from,
    )

"""
A set of peers, as a sorted array of their ids: 8 bytes each.

There is one for each topic and each channel, and most hold a few peers or a few hundred. A `set` takes 216 bytes when
it is empty and 32 to 130 for each member; this takes 80 and 8, and peers, which are numbered as they come, mostly go
to its end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left


def no_members() -> array[int]:
    """An empty one."""
    return array("q")


def holds(members: array[int], peer_id: int) -> bool:
    at = bisect_left(members, peer_id)
    return at < len(members) and members[at] == peer_id


def add(members: array[int], peer_id: int) -> bool:
    """Put the peer in. False: it was there already."""
    at = bisect_left(members, peer_id)
    if at < len(members) and members[at] == peer_id:
        return False
    members.insert(at, peer_id)
    return True


def discard(members: array[int], peer_id: int) -> bool:
    """Take the peer out. False: it was not there."""
    at = bisect_left(members, peer_id)
    if at == len(members) or members[at] != peer_id:
        return False
    del members[at]
    return True

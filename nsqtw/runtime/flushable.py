"""
A connection that knows whether the pump is going to ask it.

A class, not a Protocol, so that where this is compiled the pump calls it directly; and a list of those that are noted,
where others are in a dictionary, whose entries took a thirtieth of a PUB that waits. It is not for classes that are not
compiled: their attributes take twice as long if they inherit from it, which made an HTTP `/pub` 6 % slower.

This module is hot, once per connection and turn.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr


# Where this is compiled, classes of others still may inherit from it.
@mypyc_attr(allow_interpreted_subclasses=True)
class Flushable:
    """See Connection."""

    is_queued: bool = False
    """Whether it is going to be asked at the end of this turn. For the pump only."""

    def flush(self, now: float) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

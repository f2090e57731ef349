"""
A connection that knows whether it is queued for a flush.

It is a class, not a Protocol, so that the compiled pump calls it directly; and queued connections are a list, where
others are in a dictionary, whose entries took a thirtieth of a PUB that waits. It is not for classes that are not
compiled: their attributes take twice as long if they inherit from it, which made an HTTP `/pub` 6 % slower.

Performance: called once per connection and turn.
"""

# mypyc: compiled

from __future__ import annotations

from mypy_extensions import mypyc_attr


# Where this is compiled, classes of others still may inherit from it.
@mypyc_attr(allow_interpreted_subclasses=True)
class Flushable:
    """See Connection."""

    is_queued: bool = False
    """Whether it is flushed at the end of this turn. Used by the pump only."""

    def flush(self, now: float) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

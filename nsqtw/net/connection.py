"""
What has something to write at the end of a turn.

A class, not a Protocol: where this is compiled, what has a class that the pump knows is called directly, and others may
still inherit from it. `is_noted` in each of them, and a list, take the place of a set of them all, whose lookups took a
thirtieth of a PUB that waits.

This module is hot, once per connection and turn.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    """See `Turns`."""

    is_noted: bool = False
    """Whether it is going to be asked in this turn. For the pump only."""

    def flush(self, now: float) -> None:
        """Write what there is."""
        raise NotImplementedError

    def abort(self) -> None:
        """End at once: something in here is broken."""
        raise NotImplementedError

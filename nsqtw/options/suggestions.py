"""What somebody may have meant who wrote a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """
    `, did you mean ...?` with the known name that looks most like `name`; empty when none does. `prefix`, which all
    of them have, makes nothing more alike.
    """
    # Only who has a wrong name waits for this.
    from difflib import get_close_matches

    matches = get_close_matches(name.removeprefix(prefix), [word.removeprefix(prefix) for word in known], 1)
    return f", did you mean {prefix + matches[0]!r}?" if matches else ""

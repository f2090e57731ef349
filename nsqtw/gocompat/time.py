"""Times as Go prints them."""

from __future__ import annotations

from datetime import datetime


def local_time_text(timestamp: int) -> str:
    """Unix seconds as RFC 3339 in local time, `Z` for no offset."""
    text = datetime.fromtimestamp(timestamp).astimezone().isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")

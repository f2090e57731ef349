"""
``python -m contrib.spark.copies``: copies modules of nsqtw into the connector, which is installed without the broker.

A copied module imports nothing of nsqtw. A change is made in the original; a test compares the copies with it.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).with_name("pyspark_nsq")
BROKER = Path(__file__).parents[2] / "nsqtw"
COPIES = {
    "channel/v2_commands.py": "client/commands.py",
    "channel/v2_frames.py": "client/frames.py",
    "foreign_text.py": "foreign_text.py",
    "http/client.py": "http/client.py",
    "http/failures.py": "http/failures.py",
    "http/kept_connections.py": "http/kept_connections.py",
    "options/addresses.py": "options/addresses.py",
}
"""The copies, as paths in `PACKAGE`, and their originals, as paths in `BROKER`."""


def copy_all(package: Path) -> None:
    """Write all copies into a package."""
    for copy, original in COPIES.items():
        (package / copy).parent.mkdir(parents=True, exist_ok=True)
        (package / copy).write_bytes((BROKER / original).read_bytes())


def differing(package: Path) -> list[str]:
    """Return the copies in a package that are missing or differ from their originals."""
    return [
        copy
        for copy, original in COPIES.items()
        if not (package / copy).exists() or (package / copy).read_bytes() != (BROKER / original).read_bytes()
    ]


if __name__ == "__main__":
    copy_all(PACKAGE)

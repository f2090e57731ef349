"""
A run of clicks through a broker and ``nsqtw-spark etl``, compared with a computation in plain Python.

    clicks ──▶ topic "clicks" ──▶ nsqtw-spark etl ──▶ counts/        windows by event and country
                                        │ users.csv
                                        └──────────▶ dead_letters/  messages that are no clicks

The clicks come in two parts, each followed by a run of the pipeline. The second part has clicks that are too late for
their window. Exit status 0: the result is right.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds

from contrib.demo.broker import Broker
from contrib.spark.examples.etl import clicks
from contrib.spark.examples.etl.expected import Expected, Window, expected

CONFIG = Path(__file__).with_name("pipeline.toml")
TOPIC = "clicks"
_ADDRESS = "127.0.0.1:4151"


@dataclass(frozen=True)
class Result:
    """The tables that the pipeline wrote, and the expected ones."""

    counts: Counter[Window]
    dead_letters: Counter[bytes]
    expected: Expected

    @property
    def is_right(self) -> bool:
        return self.counts == self.expected.counts and self.dead_letters == self.expected.dead_letters


def run(folder: Path, broker: Broker, count: int, etl: Callable[[Path], None]) -> Result:
    """Publish the clicks, and run the pipeline with `etl` after each part. All files are in the folder."""
    config = folder / CONFIG.name
    config.write_text(CONFIG.read_text("utf-8").replace(_ADDRESS, broker.http), "utf-8")
    users = clicks.write_users(folder / "users.csv")
    broker.create(TOPIC, [])
    broker.retain(TOPIC, "1h")
    parts = clicks.parts(count)
    for messages in parts:
        broker.publish(TOPIC, messages)
        etl(config)
    return Result(_counts(folder / "counts"), _dead_letters(folder / "dead_letters"), expected(parts, users))


def _counts(folder: Path) -> Counter[Window]:
    """Return the windows of the table. The counts of a window that exists twice are added."""
    found: Counter[Window] = Counter()
    for row in ds.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist():
        found[row["start"], row["event"], row["country"]] += row["count"]
    return found


def _dead_letters(folder: Path) -> Counter[bytes]:
    return Counter(ds.dataset(folder, format="parquet").to_table().column("value").to_pylist())


def _command(config: Path) -> None:
    subprocess.run([sys.executable, "-m", "pyspark_nsq.jobs", "etl", str(config)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m contrib.spark.examples.etl", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=20_000, help="clicks to make (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="etl-example-") as name:
        folder = Path(name)
        with Broker(Path(sys.executable).parent / "nsqd", folder) as broker:
            broker.start()
            result = run(folder, broker, given.count, _command)
    right = result.expected
    print(
        f"{sum(right.counts.values()):,} clicks in {len(right.counts):,} windows, {right.late:,} too late, "
        f"{sum(right.dead_letters.values()):,} dead letters: {'as computed' if result.is_right else 'NOT as computed'}"
    )
    return 0 if result.is_right else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""The part of the demo behind the topic: an archive of its log, SQL over it, and a replay of the archive.

Each is a command of ``nsqtw-spark`` in a process of its own, as a user would start it.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds

from contrib.demo.broker import Broker
from contrib.demo.children import Child
from contrib.demo.errors import DemoError
from contrib.demo.ledger import identity
from contrib.demo.report import Kind, Outcome

REPLAYED, SUMMARY = "replayed", "summary"
_CONFIG = Path(__file__).with_name("summary.toml")
_ADDRESS = "127.0.0.1:4151"
_MOST_KINDS = 1000

#: Waits for the end of a process, and returns its exit code.
Wait = Callable[[Child], int]


class Lake:
    """The jobs on `topic`, with their files in `folder`."""

    def __init__(self, broker: Broker, topic: str, folder: Path, wait: Wait) -> None:
        self._broker, self._topic, self._folder, self._wait = broker, topic, folder, wait
        self._archive = folder / "lake"

    def archive(self, published: set[str]) -> Outcome:
        """Archive the topic, and compare the archive with what was published."""
        self._run("archive", "--topic", self._topic, "--output", str(self._archive), "--once")
        rows = 0
        found = set()
        for value in self._values():
            rows += 1
            found.add(identity(value))
        return Outcome.of("archive", "nsqtw-spark archive", published, found, rows)

    def summarize(self) -> list[Kind]:
        """Run SQL over the topic's log, and return what it has published."""
        config = self._folder / _CONFIG.name
        config.write_text(_CONFIG.read_text("utf-8").replace(_ADDRESS, self._broker.http), "utf-8")
        self._run("etl", str(config), address=False)
        rows = [json.loads(body) for body in self._broker.waiting(SUMMARY, _MOST_KINDS)]
        return sorted((Kind(**row) for row in rows), key=lambda kind: (-kind.records, kind.kind))

    def replay(self) -> None:
        """Publish the archive to another topic."""
        self._run("replay", "--archive", str(self._archive), "--topic", self._topic, "--to-topic", REPLAYED)

    def _run(self, job: str, *arguments: str, address: bool = True) -> None:
        name = f"nsqtw-spark {job}"
        given = [job, *arguments, *(["--nsqd-http-address", self._broker.http] if address else [])]
        with Child.python(name, "pyspark_nsq.jobs", given, self._folder / f"{job}.log") as child:
            if self._wait(child) != 0:
                raise DemoError(f"{name} has failed:\n{child.last_words()}")

    def _values(self) -> Iterator[bytes]:
        for batch in ds.dataset(self._archive, format="parquet").to_batches(columns=["value"]):
            yield from batch.column("value").to_pylist()

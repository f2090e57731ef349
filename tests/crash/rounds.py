"""
Rounds of a broker's life: clients are at it and the nemesis too, it dies, perhaps what it left is damaged, it starts
again, what it says it has is counted, and most times everything is drained, and then the whole history is checked.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.crash.chapters import Chapters, Reading, Writing
from tests.crash.failing_calls import Fault, faults_of
from tests.crash.harness import Harness
from tests.crash.history import (
    CLASSES,
    DRAINED,
    FSYNC,
    OS,
    POWER,
    Began,
    Channel,
    Found,
    Journal,
    Tally,
)
from tests.crash.nemesis import ENDS, MIDST, SETTLED, UNREAD, End, Nemesis
from tests.crash.policies.table import ROWS, Rows
from tests.crash.promises import Broken, await_promised
from tests.crash.readers import DAWDLERS_TIMEOUT_MS, Reader
from tests.crash.stored_ids import STORED_IDS
from tests.crash.writers import Writer
from tests.wire import Refused

CHANNELS = tuple(Channel(durability, name) for durability in CLASSES for name in "ab")
WRITERS = 3
MOST_MESSAGES = 600
MOST_ROUND_SECONDS = 2.0
"""A round's traffic ends then, or when so many messages as it is meant to have are answered."""


class Campaign(Chapters):
    """
    Rounds on one data path under `directory`, all of it decided by `seed` but for what threads and processes do with
    it. Broken when something is wrong, with a report of it. Leave it with `close`. `rows` are the policies that take
    part (`policies.table`); `is_plain`: topics without any do, too. `drains` is
    the share of rounds after which everything is drained and checked.
    """

    def __init__(
        self,
        directory: Path,
        backend: str,
        seed: str,
        *,
        ends: Sequence[End] = ENDS,
        most_messages: int = MOST_MESSAGES,
        faults: Sequence[Fault] = (),
        flags: Sequence[str] = (),
        sabotage: str = "",
        rows: Sequence[str] = tuple(ROWS),
        is_plain: bool = True,
        drains: float = 0.7,
    ) -> None:
        super().__init__()
        self._directory = directory
        self._seed = seed
        self._most_messages = most_messages
        self._chance = random.Random(seed)
        self._ends = [end for end in ends if end.how != POWER or backend == "disk"]
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / "nsqd.cfg"
        given = [f"--backend={backend}", f"--config={config}", "--protocol=V2,V3", *self._flags(), *flags]
        self.harness = Harness(directory, *given, sabotage=sabotage)
        self._is_plain = is_plain
        self._drains = drains
        chance = random.Random(f"{seed} rows")
        durability = chance.choice((OS, FSYNC))
        self._rows = Rows(self.harness, rows, seed, durability, chance)
        plain = "".join(f'[topic."{name}"]\ndurability = "{name}"\n' for name in CLASSES)
        config.write_text(plain + self._rows.config())
        self._channels = CHANNELS if is_plain else ()
        self.journal = Journal(self._channels)
        self._nemesis = Nemesis(self.harness, self.journal, backend, self._chance, faults or faults_of(backend))
        self._stored_ids = STORED_IDS[backend]
        self.tally = Tally()
        self.about = f"seed {seed}, {backend}, {' '.join(given[3:])}, policies with {durability}"
        self._end = self._chance.choice(self._ends)
        self._clients: list[Writing | Reading] = []

    def run(self, enough: Callable[[], bool]) -> None:
        """Rounds until it is enough, and one at least."""
        try:
            self._run(enough)
        except (Broken, Refused) as failure:
            raise Broken(self._report(str(failure))) from failure

    def _run(self, enough: Callable[[], bool]) -> None:
        self._launch()
        for channel in self._channels:
            self.harness.create(channel.topic, channel.name)
        self._rows.create()
        while True:
            self._round()
            if enough():
                break
        self._recount()
        self._drain()
        self.harness.stop()
        if not self._nemesis.has_damaged and "are lost" in self.harness.said():
            raise Broken("the broker reports damage that nobody did")

    def close(self) -> None:
        """Leave no process and no thread behind."""
        try:
            self.harness.close()
        finally:
            self._rows.close()
            for client in self._clients:
                client.join()

    def _flags(self) -> list[str]:
        """Options that lead elsewhere in the code."""
        chance = self._chance
        return [
            f"--msg-timeout={DAWDLERS_TIMEOUT_MS}ms",
            f"--max-bytes-per-file={chance.choice((65_536, 1_000_000))}",
            f"--mem-queue-size={chance.choice((0, 20, 10_000))}",
            f"--sync-timeout={chance.choice(('50ms', '2s'))}",
            f"--requeue-on-disconnect={chance.choice(('true', 'false'))}",
        ]

    # -- a round

    def _round(self) -> None:
        self._nemesis.begin()
        end = self._end
        with self._at_work(end) as die:
            die()
        self.tally.rounds += 1
        self.tally.failed_calls = self.harness.calls.hits
        if end.how == POWER:
            self._rows.lose_power()
        damaged = self._nemesis.spoil()
        if damaged is not None:
            self._rows.excuse(damaged)
        else:
            found = self._stored_ids(self.harness.data_path)
            self.journal.record(*[Found(topic, found.get(topic, frozenset())) for topic in CLASSES])
        self._end = self._chance.choice(self._ends)
        self._launch()
        self._recount()
        self._raise_for([*self._rows.started()])
        if self._chance.random() < self._drains:
            self._drain()
        self.harness.assert_no_traceback()

    @contextmanager
    def _at_work(self, end: End) -> Iterator[Callable[[], None]]:
        """Clients at work until the moment of death; afterwards they are gone."""
        number = f"{self._seed}.{self.harness.life}"
        writers: list[Writing] = []
        readers: list[Reading] = []
        if self._is_plain:
            writers += [Writer(self.harness, self.journal, f"{number}.{one}") for one in range(WRITERS)]
            readers += [
                Reader(self.harness, self.journal, channel, f"{number}.{place}", prompt=self._chance.random() < 0.6)
                for place, channel in enumerate(self._channels)
            ]
        publishing, consuming = self._rows.clients()
        writers += publishing
        readers += consuming
        self._clients = [*writers, *readers]
        for client in self._clients:
            client.start()
        try:
            self._harm(writers, self._chance.randint(30, self._most_messages))
            if end.scene == UNREAD:
                self._leave_unread(writers, readers)
            elif end.scene != MIDST:
                self._quiet(writers, readers, drain=end.scene != SETTLED)
            yield lambda: self._nemesis.kill(end.how)
        finally:
            for writer in writers:
                writer.stopping.set()
            for reader in readers:
                reader.tidy = True
            if self.harness.runs:
                self.harness.close()
            for client in self._clients:
                client.join()
        self._raise_failures()

    def _harm(self, writers: list[Writing], wanted: int) -> None:
        """The nemesis at work, until enough is published. After a full disk publishing must go on by itself."""
        deadline = time.monotonic() + MOST_ROUND_SECONDS

        def count() -> int:
            self._raise_failures()
            return sum(writer.acknowledged for writer in writers)

        await_promised(count, "the first answer to a publish")
        while count() < wanted and time.monotonic() < deadline:
            if self._nemesis.harm():
                before = count()
                await_promised(lambda before=before: count() > before, "publishing after a full disk")  # type: ignore[misc]

    def _quiet(self, writers: list[Writing], readers: list[Reading], *, drain: bool) -> None:
        """No more traffic. All that consumers said is done and saved; with `drain` they finish everything first."""
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join()
        if drain:
            for reader in readers:
                reader.finish_all()
            self._await_empty(self._channels)
        for reader in readers:
            reader.leave()
        for reader in readers:
            reader.join()
        if drain:
            self._count(DRAINED)
        self._store()

    def _leave_unread(self, writers: list[Writing], readers: list[Reading]) -> None:
        """Publishing goes on without consumers, and all counts are saved."""
        for reader in readers:
            reader.leave()
        for reader in readers:
            reader.join()
        done = sum(writer.acknowledged for writer in writers)
        self._harm(writers, done + self._chance.randint(30, self._most_messages))
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join()
        self._store()

    # -- between rounds

    def _launch(self) -> None:
        self.harness.launch(volatile=self._end.how == POWER)
        self.journal.record(Began(self.harness.life))

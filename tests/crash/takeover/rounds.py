"""
Rounds of a data set with two brokers: clients are at it and the nemesis too, one broker takes over from the other, and
most times everything is drained from the one that serves in the end, and the whole history is checked.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from statistics import median

from attrs import define, field, fields

from nsqtw.tools.replicate import init
from tests.crash.chapters import Chapters
from tests.crash.history import FSYNC, OS, Answered, Journal, Sent, Tally
from tests.crash.policies.clients import STORED
from tests.crash.policies.deduplication import Deduplication
from tests.crash.policies.notes import Answered as AnsweredByPolicy
from tests.crash.policies.notes import Published
from tests.crash.policies.table import Rows
from tests.crash.promises import Broken, await_promised
from tests.crash.readers import DAWDLERS_TIMEOUT_MS
from tests.crash.takeover.brokers import PLACES, Brokers
from tests.crash.takeover.database import Database
from tests.crash.takeover.links import Link
from tests.crash.takeover.nemesis import Nemesis
from tests.crash.takeover.traffic import CHANNELS, TOPICS, Traffic
from tests.crash.takeover.watch import Publish, Watch
from tests.wire import HOST, Closed, Refused

_SHOWN = 5
_LETTER_TWICE = re.compile(r"dead letters: .* is there \d+ times: ")
DOUBTFUL = ("lose primary", "freeze store", "fill store", "fill owner", "part owner", "part both", "slow down")
"""Deeds after which nobody knows of some commits whether the store has them, or only the store has."""
ROWS = ("ordered", "letters", "headers", "once", "urgent", "directed")
"""The policies that take part: some whose promises need no more than clients, and no topic that nobody uses."""
KILLED, SETTLED, STORED_AND_KILLED = ENDS = ("killed", "settled", "stored and killed")


@define
class TakeoverTally(Tally):
    """What a campaign comes to."""

    takeovers: list[float] = field(factory=list)
    """Seconds from each deed to the first delivery by another epoch."""

    def add(self, other: TakeoverTally) -> None:
        """Add the figures of another campaign."""
        for one in fields(TakeoverTally):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def __str__(self) -> str:
        times = self.takeovers
        took = f", median {median(times):.1f} s, worst {max(times):.1f} s" if times else ""
        return (
            f"{self.rounds} rounds, {self.acknowledged} acknowledged, {self.delivered} delivered, {self.repeats} "
            f"repeated, {self.lost} lost, {len(times)} takeovers{took}"
        )


class TakeoverCampaign(Chapters):
    """
    Rounds on one data set, decided by `seed` but for what threads and processes do with it. Broken when something is
    wrong, with a report of it. Leave it with `close`. `told` gets a line for each round.
    """

    tally: TakeoverTally

    def __init__(
        self,
        directory: Path,
        seed: str,
        *,
        deeds: Sequence[str] = tuple(Nemesis.DEEDS),
        ends: Sequence[str] = ENDS,
        rows: Sequence[str] = ROWS,
        is_plain: bool = True,
        sabotage: str = "",
        drains: float = 0.7,
        told: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__()
        self._directory = directory
        self._seed = seed
        self._chance = chance = random.Random(seed)
        self._ends = ends
        self._drains = drains
        self._is_plain = is_plain
        self._told = told
        self._clients = []
        self._traffic: Traffic | None = None
        self._channels = CHANNELS if is_plain else ()
        self.journal = Journal(self._channels)
        self.tally = TakeoverTally()
        directory.mkdir(parents=True, exist_ok=True)
        self._lease = chance.choice((2.0, 3.0, 3.0))
        flags = self._flags()
        durability = chance.choice((OS, FSYNC))
        self.about = f"seed {seed}, {' '.join(flags)}, policies with {durability}"
        self._database = Database()
        self._links: dict[str, Link] = {}
        self._watch: Watch | None = None
        try:
            self._database.start()
            self._links = {place: Link(self._database.ports) for place in PLACES}
            config = directory / "nsqd.cfg"
            flags.append(f"--config={config}")
            flags_of: dict[str, Sequence[str]] = {place: [*flags, self._replicate(place)] for place in PLACES}
            self._brokers = Brokers(directory, self.journal, flags_of, sabotage, seed)
            # Rows have the broker of the moment; this one is never started.
            self._rows = Rows(self._brokers.unused, rows, seed, durability, random.Random(f"{seed} rows"))
            plain = "".join(f'[topic."{name}"]\ndurability = "{name}"\n' for name in TOPICS)
            config.write_text(plain + self._rows.config())
            (directory / "direct" / "data").mkdir(parents=True)
            store_name = self._write_settings("direct", self._database.dsn)
            # `init` makes an empty data path one of the backend disk.
            first = "a" if "--backend=disk" in flags else "direct"
            init(store_name, str(directory / first / "data"), False, lambda line: None)
            self._watch = Watch(directory / "direct", self._database.dsn, self._brokers.follow)
            self._nemesis = Nemesis(
                self._brokers, self._database, self._links, store_name, self._lease, random.Random(f"{seed} nemesis")
            )
        except BaseException:
            self.close()
            raise
        self._deeds = [deed for deed in deeds if self._nemesis.can(deed)]
        self._left: list[str] = []
        self._is_doubtful = False
        """Whether, in this chapter, a commit may have been refused that the store has."""

    def _flags(self) -> list[str]:
        """Options that lead elsewhere in the code."""
        chance = self._chance
        return [
            f"--replicate-lease={self._lease:.0f}s",
            f"--replicate-timeout={chance.choice(('1s', '2s', '5s'))}",
            f"--msg-timeout={DAWDLERS_TIMEOUT_MS}ms",
            f"--backend={chance.choice(('disk', 'disk', 'sqlite'))}",
            f"--max-bytes-per-file={chance.choice((65_536, 1_000_000))}",
            f"--mem-queue-size={chance.choice((0, 20, 10_000))}",
            f"--requeue-on-disconnect={chance.choice(('true', 'false'))}",
            "--protocol=V2,V3",
        ]

    def _replicate(self, place: str) -> str:
        ports = ",".join(map(str, self._links[place].ports))
        dsn = f"host={HOST},{HOST} port={ports} dbname=postgres user=nsqtw target_session_attrs=read-write"
        (self._directory / place / "data").mkdir(parents=True, exist_ok=True)
        return f"--replicate={self._write_settings(place, dsn)}"

    def _write_settings(self, folder: str, dsn: str) -> str:
        path = self._directory / folder / "store.toml"
        path.write_text(f'dsn = "{dsn}"\n')
        path.chmod(0o600)
        return f"postgres:{path}"

    # -- rounds

    def run(self, enough: Callable[[], bool]) -> None:
        """Rounds until it is enough, and one at least."""
        try:
            self._run(enough)
        except (Broken, Refused) as failure:
            more = [] if self._watch is None else [*self._watch.found(self._publishes())]
            raise Broken(self._report("\n".join([str(failure), *more[:_SHOWN]]))) from failure

    def _run(self, enough: Callable[[], bool]) -> None:
        assert self._watch is not None
        self._watch.start()
        self._brokers.start()
        self._on_owner()
        for channel in self._channels:
            self.harness.create(channel.topic, channel.name)
        self._rows.create()
        while True:
            self._round()
            if enough():
                break
        self._drain()

    def _next_deed(self) -> str:
        """All of them are done in turn, in an order by chance."""
        if not self._left:
            self._left = self._chance.sample(self._deeds, len(self._deeds))
        return self._left.pop()

    def _round(self) -> None:
        deed, end = self._next_deed(), self._chance.choice(self._ends)
        self._brokers.is_forgiving = False
        owner = self._brokers.await_owner()
        if self._chance.random() < 0.8:
            self._await_standby()
        traffic = Traffic(
            self._brokers, self.journal, self._rows, f"{self._seed}.{self.tally.rounds}", is_plain=self._is_plain
        )
        self._traffic, self._clients = traffic, traffic.clients
        traffic.start()
        traffic.await_flow(owner.life)
        time.sleep(self._chance.uniform(0.1, 1.0))  # traffic before the deed
        life = owner.life
        self._is_doubtful = self._is_doubtful or deed in DOUBTFUL
        self._nemesis.do(deed, owner)
        traffic.await_flow(life, 20)
        now = self._brokers.await_owner()
        traffic.await_flow(now.life, 20)
        self._database.repair()
        took = self._note_takeover(life)
        self._end(traffic, end)
        self.tally.rounds += 1
        self._told(f"round {self.tally.rounds}: {deed}, {end}, epoch {life} to {self._brokers.last_epoch}{took}")
        self._raise_for([*self._brokers.wrongs])
        if self._chance.random() < self._drains:
            self._drain()

    def _note_takeover(self, life: int) -> str:
        """Note how long it took, if another epoch began."""
        assert self._traffic is not None
        if self._brokers.last_epoch == life:
            return ""
        await_promised(lambda: self._traffic.first_delivery(life), "a delivery")  # type: ignore[union-attr]
        delivered = self._traffic.first_delivery(life)
        assert delivered is not None
        self.tally.takeovers.append(delivered - self._nemesis.struck)
        return f", {self.tally.takeovers[-1]:.1f} s"

    def _end(self, traffic: Traffic, end: str) -> None:
        """The clients end, and perhaps the owner too: then the next one has to have all of it."""
        traffic.stop(leaving=end != KILLED, finishing=end == SETTLED)
        owner = self._brokers.await_owner()
        if end == KILLED:
            self._nemesis.do("kill owner", owner)
        traffic.join_clients()
        self._raise_failures()
        self._on_owner()
        if end == STORED_AND_KILLED:
            self._retry(self._store)
            self._nemesis.do("kill owner", self._brokers.await_owner())
            self._on_owner()
        if end != SETTLED and self._is_plain:
            self._retry(self._recount)

    def _await_standby(self) -> None:
        """The other broker has all there is."""

        def is_there() -> bool:
            self._brokers.raise_failures()
            return any(one["seconds_ago"] < 3 for one in self._brokers.standbys())

        await_promised(is_there, "a standby is there")

    def _on_owner(self) -> None:
        self.harness = self._brokers.await_owner()
        self._rows.move(self.harness)

    def _retry(self, work: Callable[[], None]) -> None:
        """Do it with the broker that serves, and again if another one takes over meanwhile: the machine may be slow."""
        while True:
            self._on_owner()
            life = self.harness.life
            try:
                work()
            except (OSError, HTTPException, Closed):
                if self._brokers.await_owner().life == life and self.harness.is_alive(life):
                    raise
            else:
                return

    def _drain(self) -> None:
        self._retry(super()._drain)

    def _check(self) -> None:
        assert self._watch is not None
        self._raise_for([*self._watch.found(self._publishes())])
        events = [*self.journal.events, *self._rows.events()]
        with (self._directory / "journal.past").open("a") as past:
            past.write("".join(f"{event}\n" for event in events))
        super()._check()
        self._watch.forget()
        self._is_doubtful = False

    def _raise_for(self, found: list[str]) -> None:
        """A letter whose commit was refused may be in the store, and is moved once more: at least once."""
        super()._raise_for([wrong for wrong in found if not (self._is_doubtful and _LETTER_TWICE.match(wrong))])

    def _publishes(self) -> Iterator[Publish]:
        """All of this chapter."""
        good = {event.body for event in self.journal.events if isinstance(event, Answered) and event.good}
        for event in self.journal.events:
            if isinstance(event, Sent):
                yield event.body, event.life, event.at, event.body in good
        events = [*self._rows.events()]
        stored = {
            (event.body, event.life)
            for event in events
            if isinstance(event, AnsweredByPolicy) and event.outcome == STORED
        }
        for one in events:
            # A repeat is noted as the first publish was, and may be stored by a later broker.
            if isinstance(one, Published) and one.topic != Deduplication.name:
                yield one.body, one.life, one.when.at, (one.body, one.life) in stored

    def close(self) -> None:
        """Leave no process, no thread and no disk behind."""
        try:
            if hasattr(self, "_brokers"):
                self._brokers.close()
            if self._traffic is not None:
                self._traffic.stop_at_once()
        finally:
            if self._watch is not None and self._watch.is_alive():
                self._watch.close()
            for link in self._links.values():
                link.close()
            self._database.close()

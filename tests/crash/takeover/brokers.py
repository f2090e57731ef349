"""
Two brokers with one data set, and what a service manager does for them: a broker that ends is started again.

Each start of a broker is an object of its own, with ports of its own: a client that belongs to an earlier start finds
nobody there. The broker that serves in an epoch is found by the address that the store has for it, and the epoch is the
`life` in which all of it is noted.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from nsqtw.replication.store import DataSet
from tests.crash.harness import LAUNCHER, Harness
from tests.crash.history import KILL, STOP, Died, Journal
from tests.crash.promises import Broken, await_promised
from tests.process import comes_true
from tests.wire import ANSWER_SECONDS, HOST

PLACES = ("a", "b")
REPLACED = 3
"""The exit code of a broker that is not the owner any more."""
RELEASED = "releasing the data set"
NOT_A_COPY = "--replicate-from"
"""A broker says it that refuses its own data path."""
LOSSES = (" are lost", "messages lost: ", "is not stored any more")
"""How a broker says that messages are gone. Nobody takes any."""
NOT_SAVED = ("cannot be stored", "takes longer than")
"""Said by a broker whose last checkpoint may not be in the store."""
_EXIT_CODES: dict[int | None, tuple[int, ...]] = {signal.SIGKILL: (-signal.SIGKILL, 0), signal.SIGTERM: (0,)}
"""Those of a broker that was sent a signal; one that was killed may have ended before."""
_END_SECONDS = 20.0
_LOOK_AGAIN_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.5


class Replica(Harness):
    """One start of the broker at a place. Its `life` is the epoch in which it owns the data set; 0 before."""

    def __init__(self, directory: Path, place: str, flags: Sequence[str], sabotage: str) -> None:
        (directory / place).mkdir(exist_ok=True)
        super().__init__(directory / place, *flags, f"--broadcast-address={HOST}", sabotage=sabotage)
        self.place = place
        self.sentence: int | None = None
        """The signal that was sent to end it."""
        self._has_served = False
        self._began = len(self.said())
        self._command = [sys.executable, str(LAUNCHER), str(self._control_path), "narrow", sabotage, *self._flags]

    def launch(self, *, volatile: bool = False) -> None:
        """Start it. It may end at any time."""
        assert not volatile, "the power does not fail here"
        began = time.monotonic()
        self.start()
        self.start_seconds = time.monotonic() - began

    def own_words(self) -> str:
        """What it said since it was started."""
        return self.said()[self._began :]

    def is_alive(self, life: int) -> bool:
        """Whether it goes on in that life: one that ends its connections may be about to end by itself."""
        return self.life == life and not comes_true(lambda: not self.runs, _END_SECONDS)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def send(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.runs:
            if number in (signal.SIGKILL, signal.SIGTERM):
                self.sentence = number
            self.signal(number)

    def serves(self) -> bool:
        """Whether clients can come. A broker that has begun to serve does so until it ends."""
        if not self._has_served:
            try:
                answer = self.http("GET", "/v2/replica")
                with socket.create_connection((HOST, self.tcp_port), timeout=ANSWER_SECONDS):
                    self._has_served = answer.status == 200 and json.loads(answer.body)["role"] == "owner"
            except (OSError, HTTPException):
                return False
        return self._has_served

    def _listens(self, said: str) -> bool:
        return not self.runs or f"HTTP: listening on {HOST}:" in said


class Keeper(threading.Thread):
    """The service manager of one place: it starts the broker again whenever it has ended, unless it is told not to."""

    def __init__(self, brokers: Brokers, place: str) -> None:
        super().__init__(name=f"keeper {place}")
        self._brokers = brokers
        self._place = place
        self.allowed = threading.Event()
        """Cleared: what has ended stays down."""
        self.allowed.set()
        self.current: Replica | None = None
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._brokers.closing.is_set():
                self.current = replica = self._brokers.make(self._place)
                replica.launch()
                while replica.runs and not self._brokers.closing.is_set():
                    time.sleep(_LOOK_AGAIN_SECONDS)  # a process of its own
                self._brokers.ended(replica)
                pause = self._brokers.chance.uniform(0, _LONGEST_PAUSE_SECONDS)
                self._brokers.closing.wait(pause)
                while not self.allowed.wait(_LOOK_AGAIN_SECONDS) and not self._brokers.closing.is_set():
                    pass
        except BaseException as failure:
            self.failure = failure


class Brokers:
    """Both, on data paths below `directory`. `found` is told of all that must not be."""

    def __init__(
        self, directory: Path, journal: Journal, flags: dict[str, Sequence[str]], sabotage: str, seed: str
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._flags = flags
        self._sabotage = sabotage
        self.chance = random.Random(f"{seed} keepers")
        self.closing = threading.Event()
        self.keepers = {place: Keeper(self, place) for place in PLACES}
        self.replicas: list[Replica] = []
        self.wrongs: list[str] = []
        """Brokers that ended as they must not."""
        self.exits: list[tuple[str, int]] = []
        self.is_forgiving = False
        """Whether a broker may end with an error now: its disk is full, or its store is away while it takes over."""
        self.last_epoch = 0
        self.unused = Replica(directory, "unused", (), "")
        """Never started."""

    def start(self) -> None:
        """Start both."""
        for keeper in self.keepers.values():
            keeper.start()

    def make(self, place: str) -> Replica:
        """A new start at a place."""
        replica = Replica(self._directory, place, self._flags[place], self._sabotage)
        self.replicas.append(replica)
        return replica

    def ended(self, replica: Replica) -> None:
        """A process has ended: note how, and whether it may."""
        code, words = replica.exit_code, replica.own_words()
        if self.closing.is_set() or code is None:
            return
        self.exits.append((replica.place, code))
        allowed = {REPLACED, *_EXIT_CODES.get(replica.sentence, ())}
        # It could not begin to serve: the store was away, or the machine is slow.
        is_forgiven = code == 1 and NOT_A_COPY not in words and (self.is_forgiving or "did not answer" in words)
        if code not in allowed and not is_forgiven:
            self.wrongs.append(f"exit: the broker {replica.place} ended with {code}: {words[-1500:]}")
        if "Traceback" in words:
            self.wrongs.append(f"exit: {replica.place}: {words[max(0, words.find('Traceback') - 500) :][:3000]}")
        for loss in LOSSES:
            if loss in words:
                line = next(line for line in words.splitlines() if loss in line)
                self.wrongs.append(f"loss: {replica.place} says what nobody did: {line}")
        if replica.life:
            is_planned = (replica.sentence == signal.SIGTERM and code == 0) or (
                replica.sentence is None and code == REPLACED and RELEASED in words
            )
            is_complete = is_planned and not any(failure in words for failure in NOT_SAVED)
            self._journal.record(Died(replica.life, STOP if is_complete else KILL))

    def follow(self, data_set: DataSet) -> None:
        """The store has this row: the owner of a new epoch is one of the brokers."""
        if data_set.epoch <= self.last_epoch:
            return
        for replica in reversed(self.replicas):
            if data_set.address == f"{HOST}:{replica.tcp_port}" and not replica.life and not data_set.is_released:
                replica.life = self.last_epoch = data_set.epoch
                return

    def raise_failures(self) -> None:
        """Raise what has ended a keeper, or a broker that must not have ended so."""
        if self.wrongs:
            raise Broken(self.wrongs[0])
        for keeper in self.keepers.values():
            if keeper.failure is not None:
                raise keeper.failure

    def owner(self) -> Replica | None:
        """The one that serves now, if one does."""
        lives = [replica for replica in self.replicas if replica.life]
        newest = max(lives, key=lambda replica: replica.life, default=None)
        return newest if newest is not None and newest.runs and newest.serves() else None

    def await_owner(self, after: int = 0) -> Replica:
        """Return the broker that serves in a life after this one."""
        found: list[Replica] = []

        def look() -> bool:
            self.raise_failures()
            owner = self.owner()
            if owner is not None and owner.life > after:
                found.append(owner)
            return bool(found)

        await_promised(look, f"a broker serves in a life after {after}")
        return found[-1]

    def standby_of(self, owner: Replica) -> Keeper:
        """The place of the other one."""
        return self.keepers[next(place for place in PLACES if place != owner.place)]

    def standbys(self) -> list[dict[str, Any]]:
        """What the owner says of standbys."""
        owner = self.owner()
        if owner is None:
            return []
        try:
            found: list[dict[str, Any]] = json.loads(owner.http("GET", "/v2/replica").body)["standbys"]
        except (OSError, HTTPException):
            return []
        return found

    def close(self) -> None:
        """Leave no process and no port behind."""
        self.closing.set()
        for keeper in self.keepers.values():
            if keeper.is_alive():
                keeper.join()
        for replica in (*self.replicas, self.unused):
            with suppress(AssertionError):
                replica.close()

"""Clients that follow the data set: each epoch has publishers and consumers of its own, at the broker that serves."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from contextlib import suppress

from tests.crash.chapters import Reading, Writing
from tests.crash.history import FSYNC, OS, Began, Channel, Delivered, Journal
from tests.crash.policies.notes import Delivered as DeliveredByPolicy
from tests.crash.policies.table import Rows
from tests.crash.promises import Broken, await_promised
from tests.crash.readers import Reader
from tests.crash.takeover.brokers import Brokers, Replica
from tests.crash.writers import Writer
from tests.wire import ANSWER_SECONDS

TOPICS = (OS, FSYNC)
CHANNELS = tuple(Channel(topic, name) for topic in TOPICS for name in "ab")
WRITERS = 3
_LOOK_AGAIN_SECONDS = 0.01
_PROMPT = 0.6


class Traffic(threading.Thread):
    """Traffic until it is stopped."""

    def __init__(self, brokers: Brokers, journal: Journal, rows: Rows, seed: str, *, is_plain: bool) -> None:
        super().__init__(name=f"traffic {seed}")
        self._brokers = brokers
        self._journal = journal
        self._rows = rows
        self._seed = seed
        self._is_plain = is_plain
        self._chance = random.Random(f"{seed} traffic")
        self._stopping = threading.Event()
        self._of_life: dict[int, tuple[list[Writing], list[Reading]]] = {}
        self.clients: list[Writing | Reading] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        life = 0
        try:
            while not self._stopping.wait(_LOOK_AGAIN_SECONDS):
                if self._brokers.last_epoch > life:
                    owner = self._brokers.owner()
                    if owner is not None and owner.life > life:
                        life = owner.life
                        self._begin(owner)
        except BaseException as failure:
            self.failure = failure

    def _begin(self, owner: Replica) -> None:
        seed = f"{self._seed}.{owner.life}"
        writers: list[Writing] = []
        readers: list[Reading] = []
        self._journal.record(Began(owner.life))
        if self._is_plain:
            writers += [Writer(owner, self._journal, f"{seed}.{one}", TOPICS) for one in range(WRITERS)]
            readers += [
                Reader(owner, self._journal, channel, f"{seed}.{place}", prompt=self._chance.random() < _PROMPT)
                for place, channel in enumerate(CHANNELS)
            ]
        self._rows.move(owner)
        publishing, consuming = self._rows.clients()
        writers += publishing
        readers += consuming
        self._of_life[owner.life] = writers, readers
        self.clients += [*writers, *readers]
        for client in (*writers, *readers):
            client.start()

    def acknowledged(self, life: int) -> int:
        """The publishes of a life and of later ones that were answered with OK."""
        return sum(
            writer.acknowledged
            for one, (writers, _) in list(self._of_life.items())
            if one >= life
            for writer in writers
        )

    def await_flow(self, life: int, more: int = 1) -> None:
        """Return when so many more publishes are answered with OK, in this life or later ones."""
        before = self.acknowledged(life)

        def look() -> bool:
            self.raise_failures()
            return self.acknowledged(life) >= before + more

        await_promised(look, f"publishing in epoch {life} or later")

    def first_delivery(self, after: int) -> float | None:
        """When the first message was delivered in a life after this one."""
        plain = [event.at for event in self._journal.events if isinstance(event, Delivered) and event.life > after]
        others = [
            event.when.at
            for event in self._rows.events()
            if isinstance(event, DeliveredByPolicy) and event.life > after
        ]
        return min([*plain, *others], default=None)

    def raise_failures(self) -> None:
        """Raise what has ended a client, or this."""
        self._brokers.raise_failures()
        for one in (self, *self.clients):
            if one.failure is not None:
                raise one.failure

    def stop(self, *, leaving: bool, finishing: bool) -> None:
        """
        Nothing more is published. With `leaving` the consumers of the last life leave when the broker has done all that
        they said, with `finishing` also of what they had kept; else the caller ends its broker.
        """
        self._stopping.set()
        self.join()
        for writer in self._writers():
            writer.stopping.set()
        for writer in self._writers():
            self._await_end(writer)
        last = max(self._of_life, default=0)
        for life, (_, readers) in self._of_life.items():
            for reader in readers if life != last else ():
                self._await_end(reader)
        for reader in self._of_life[last][1] if last and leaving else ():
            with suppress(OSError):
                if finishing:
                    reader.finish_all()
                reader.leave()

    def stop_at_once(self) -> None:
        """The brokers are gone: leave no thread behind."""
        self._stopping.set()
        for writer in self._writers():
            writer.stopping.set()
        self.join()
        for client in self.clients:
            client.join()

    def join_clients(self) -> None:
        """Wait until all are gone."""
        for client in self.clients:
            self._await_end(client)

    def _await_end(self, client: threading.Thread) -> None:
        client.join(2 * ANSWER_SECONDS)
        if client.is_alive():
            raise Broken(f"stuck: the client {client.name}, whose broker should have ended or answered")

    def _writers(self) -> Sequence[Writing]:
        return [writer for writers, _ in self._of_life.values() for writer in writers]

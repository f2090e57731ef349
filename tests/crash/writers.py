"""Publishers that note what they send and what is answered: PUB, MPUB, DPUB and their likes over HTTP."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

from tests.crash.harness import Harness
from tests.crash.history import CLASSES, Answered, Journal, Sent, moment
from tests.crash.promises import expect
from tests.wire import Client, Closed, Refused, sized

MOST_AT_ONCE = 30
_SIZES = (0, 0, 10, 10, 10, 100, 100, 100, 1000)
_LARGE = (5_000, 30_000, 70_000)
_LARGE_SHARE = 0.02
_OK, _FULL = 200, 503
AFTER_REFUSAL_SECONDS = 0.01
"""A broker may refuse everything for seconds: nobody needs thousands of refusals."""


class Writer(threading.Thread):
    """Publishes to `topics`, one command at a time, until it is told to stop or the broker is gone."""

    def __init__(self, harness: Harness, journal: Journal, seed: str, topics: Sequence[str] = CLASSES) -> None:
        super().__init__(name=f"writer {seed}")
        self._house = harness
        self._journal = journal
        self._topics = topics
        self._chance = random.Random(seed)
        self._seed = seed.encode()
        self._turn = 0
        self._life = harness.life
        self.stopping = threading.Event()
        self.acknowledged = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                with self._house.client() as client:
                    self._publish_until_refused(client)
        except (Closed, OSError) as failure:
            if self._house.is_alive(self._life):
                self.failure = failure
        except BaseException as failure:
            self.failure = failure

    def _publish_until_refused(self, client: Client) -> None:
        while not self.stopping.is_set():
            topic = self._chance.choice(self._topics)
            command = self._chance.choice((self._pub, self._pub, self._mpub, self._dpub, self._http, self._http_many))
            count = self._chance.randint(2, MOST_AT_ONCE) if command in (self._mpub, self._http_many) else 1
            defers = command == self._dpub or (command == self._http and self._chance.random() < 0.3)
            delay_ms = self._chance.randint(1, self._house.longest_delay_ms) if defers else 0
            bodies = [self._body(number) for number in range(count)]
            self._journal.record(*[Sent(topic, body, delay_ms, self._life, moment()) for body in bodies])
            try:
                good = command(client, topic, bodies, delay_ms)
            except Refused:
                self._answered(bodies, good=False)
                return
            self._answered(bodies, good=good)

    def _answered(self, bodies: list[bytes], *, good: bool) -> None:
        self._journal.record(*[Answered(body, good, self._life) for body in bodies])
        if good:
            self.acknowledged += len(bodies)
        else:
            self.stopping.wait(AFTER_REFUSAL_SECONDS)

    def _body(self, number: int) -> bytes:
        """One that nobody else has sent or will send, with lengths as they come."""
        if not number:
            self._turn += 1
        sizes = _LARGE if self._chance.random() < _LARGE_SHARE else _SIZES
        return b"%s.%d.%d " % (self._seed, self._turn, number) + b"*" * self._chance.choice(sizes)

    def _pub(self, client: Client, topic: str, bodies: list[bytes], delay_ms: int) -> bool:
        client.pub(topic, bodies[0])
        return True

    def _mpub(self, client: Client, topic: str, bodies: list[bytes], delay_ms: int) -> bool:
        client.mpub(topic, bodies)
        return True

    def _dpub(self, client: Client, topic: str, bodies: list[bytes], delay_ms: int) -> bool:
        client.dpub(topic, delay_ms, bodies[0])
        return True

    def _http(self, client: Client, topic: str, bodies: list[bytes], delay_ms: int) -> bool:
        defer = f"&defer={delay_ms}" if delay_ms else ""
        return self._post(f"/pub?topic={topic}{defer}", bodies[0])

    def _http_many(self, client: Client, topic: str, bodies: list[bytes], delay_ms: int) -> bool:
        if self._chance.random() < 0.5:
            return self._post(f"/mpub?topic={topic}", b"\n".join(bodies))
        binary = len(bodies).to_bytes(4, "big") + b"".join(map(sized, bodies))
        return self._post(f"/mpub?topic={topic}&binary=true", binary)

    def _post(self, path: str, body: bytes) -> bool:
        answer = self._house.http("POST", path, body)
        expect(answer.status in (_OK, _FULL), path, answer)
        return answer.status == _OK

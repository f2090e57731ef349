"""
Long delays of failed messages: how long they are, and that a death changes nothing about them.

Before clients of a round begin, messages fail in each way, after one delivery and after several. Their delays are
hours, and the broker says when each of them is due. So a slow machine makes no delay wrong, and no start takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.crash.checks import SLACK_SECONDS
from tests.crash.checks import name as shown
from tests.crash.harness import Harness
from tests.crash.history import moment
from tests.crash.policies.aside import Aside, Deferred
from tests.crash.policies.delay import Delay
from tests.crash.policies.notes import Wall
from tests.crash.promises import Broken, await_promised, expect
from tests.crash.readers import NEVER_MS
from tests.wire import Client, Message

_FIRST_SECONDS = 3600
_LONGEST_SECONDS = 3 * _FIRST_SECONDS
_VARIATION = 0.2
_AGAIN = (2, 3, 5)
"""After how many deliveries messages fail; another one does after its first."""
_EACH = len(_AGAIN) + 1
_OWN_DELAY_MS = 1
"""Of a REQ that only makes another delivery."""
_ROUNDED_SECONDS = 0.002
"""Due times are saved in whole milliseconds."""
REQUEUED, TIMED_OUT, DISCONNECTED = _WAYS = ("requeued", "timed out", "disconnected")


class LongDelay(Delay):
    """Beside the messages of `Delay`, some that fail before a round begins."""

    name = "delayed-long"

    def __init__(self, house: Harness, seed: str, durability: str) -> None:
        super().__init__(house, seed, durability)
        delays = {"requeue_delay": f"{_FIRST_SECONDS}s", "max_requeue_delay": f"{_LONGEST_SECONDS}s"}
        self._failed = Aside(house, f"{self.name}.failed", delays)
        self.asides = (self._failed,)
        self._way: dict[bytes, str] = {}
        """How each message has failed."""
        self._before: Mapping[bytes, Deferred] = {}
        self._saved = Wall(0.0, 0.0)
        """What the broker said of them in the life before, and when that was saved."""

    def begin(self) -> None:
        since = moment()
        for way in _WAYS:
            bodies = self._fail(way)
            self._way |= dict.fromkeys(bodies, way)
            stats = self._failed.stats()
            counts = stats["depth"], stats["in_flight_count"], stats["deferred_count"]
            expect(counts == (0, 0, len(self._way)), f"the failure of {_EACH} messages that {way}", counts)
        self._before = self._failed.deferred()
        found = [*self.wrong_delays(self._before, since, moment())]
        if found:
            raise Broken("\n".join(found))
        self.house.store()
        self._saved = Wall(since, self.house.control.wall_offset_ns / 1e9)

    def started(self) -> Iterator[str]:
        # A due time outlives the process as one of the wall clock.
        if self._saved.ahead == self.house.control.wall_offset_ns / 1e9:
            yield from self.changed(self._before, self._failed.deferred())
        self._failed.empty()
        self._way, self._before = {}, {}

    def wrong_delays(self, deferred: Mapping[bytes, Deferred], since: float, until: float) -> Iterator[str]:
        """All that is wrong with the delays of messages that failed between two moments."""
        shares: list[tuple[float, float]] = []
        for body, (attempts, due) in deferred.items():
            delay = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** (attempts - 1))
            least, most = (due - until) / delay, (due - since) / delay
            shares.append((least, most))
            if most < 1 - _VARIATION - SLACK_SECONDS or least > 1 + _VARIATION + SLACK_SECONDS:
                what = f"{shown(body)} {self._way.get(body, '')} after {attempts} deliveries"
                yield f"delay: {what}, and waits for {least * delay:.0f} s"
        if shares and max(least for least, _ in shares) <= min(most for _, most in shares):
            yield "delay: all of them have the same variation"

    def changed(self, before: Mapping[bytes, Deferred], after: Mapping[bytes, Deferred]) -> Iterator[str]:
        """All that is wrong with what a new life has of the messages of the one before."""
        for body, was in before.items():
            if body in self.notes.excused:
                continue
            way, now = self._way.get(body, ""), after.get(body)
            if now is None:
                yield f"delay: {shown(body)} {way}, and is not deferred after a start"
            elif now.attempts != was.attempts or abs(now.due - was.due) > _ROUNDED_SECONDS + SLACK_SECONDS:
                yield f"delay: {shown(body)} {way}: it was {was}, and is {now} after a start"

    def _fail(self, way: str) -> list[bytes]:
        """Have messages fail, after each number of deliveries. Their bodies."""
        bodies = [self.body() for _ in range(_EACH)]
        topic = self._failed.channel.topic
        with self.house.client() as consumer:
            consumer.identify(msg_timeout=NEVER_MS)
            consumer.mpub(topic, bodies[1:])
            consumer.sub(*self._failed.channel, ready=len(_AGAIN))
            self._deliver_again(consumer)
        is_never = way == REQUEUED or (way == DISCONNECTED and self.house.requeues_on_disconnect)
        with self.house.client() as consumer:
            consumer.identify(msg_timeout=NEVER_MS if is_never else 0)
            consumer.pub(topic, bodies[0])
            consumer.sub(*self._failed.channel, ready=_EACH)
            failed = self._failure_count()
            messages = consumer.take(_EACH)
            if way == REQUEUED:
                consumer.rdy(0)
                for message in messages:
                    consumer.req(message, 0)
                consumer.cls()
            if way == DISCONNECTED:
                consumer.close()
            await_promised(lambda: self._failure_count() >= failed + _EACH, f"failing of messages that {way}")
        return bodies

    def _deliver_again(self, consumer: Client) -> None:
        """Let each message have one delivery less than those after which it is to fail."""
        rest, left = consumer.take(len(_AGAIN)), list[Message]()
        wanted = {message.id: deliveries for message, deliveries in zip(rest, _AGAIN, strict=True)}
        while rest:
            message = rest.pop(0)
            if message.attempts + 1 == wanted[message.id]:
                left.append(message)
            else:
                consumer.req(message, _OWN_DELAY_MS)
                rest.append(consumer.message())
        consumer.rdy(0)
        for message in left:
            consumer.req(message, _OWN_DELAY_MS)
        consumer.cls()

    def _failure_count(self) -> int:
        stats = self._failed.stats()
        count: int = stats["requeue_count"] + stats["timeout_count"]
        return count

"""
The promises, as functions of a history: each gives what is wrong with it, a line each, and nothing for a good one.

    stranded     in the topic's files above all that a channel was given, not deferred, and not delivered to it
    lost         answered with OK, and not delivered until it was finished, as its durability class promises
    invented     delivered and never sent, changed on the way, or refused; an id that is used twice
    early        delivered before its time
    attempts     counted wrong, or not counted on over a death
    denied       a FIN or REQ that failed though nothing had timed out
    came_back    delivered though it was finished, and that was known to be done, or stored
    counters     /stats says something else than a recount

None of them knows anything of the broker's inside, or of how slow the machine is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeVar

from tests.crash.history import (
    KILL,
    MEMORY,
    OS,
    POWER,
    START,
    STOP,
    Answered,
    Channel,
    Connected,
    Counted,
    Damaged,
    Delivered,
    Died,
    Event,
    Failed,
    Finished,
    Found,
    Journal,
    Jumped,
    Left,
    Requeued,
    Sent,
    Stored,
)

SLACK_SECONDS = 0.010
"""Due times are kept in whole milliseconds of the wall clock."""

E = TypeVar("E")
_Place = tuple[Channel, bytes]


class History:
    """A journal, looked at from several sides. The number of an event is its index."""

    def __init__(self, journal: Journal) -> None:
        self.past = journal.past
        self.channels = journal.channels
        self._by_kind: dict[type, list[tuple[int, Event]]] = defaultdict(list)
        for number, event in enumerate(journal.events):
            self._by_kind[type(event)].append((number, event))

    def all(self, kind: type[E]) -> list[tuple[int, E]]:
        """The events of a kind with their numbers."""
        return self._by_kind[kind]  # type: ignore[return-value]

    @cached_property
    def sent(self) -> dict[bytes, tuple[int, Sent]]:
        return {event.body: (number, event) for number, event in self.all(Sent)}

    @cached_property
    def good(self) -> dict[bytes, int]:
        """What was answered with OK: the life in which."""
        return {event.body: event.life for _, event in self.all(Answered) if event.good}

    @cached_property
    def deaths(self) -> dict[int, tuple[int, Died]]:
        return {event.life: (number, event) for number, event in self.all(Died)}

    @cached_property
    def prompt(self) -> set[int]:
        """Connections with which nothing times out."""
        return {event.connection for _, event in self.all(Connected) if event.prompt}

    @cached_property
    def failures(self) -> dict[tuple[int, bytes, str], int]:
        """How many FIN, REQ or TOUCH of a connection failed for an id."""
        counts: dict[tuple[int, bytes, str], int] = defaultdict(int)
        for _, event in self.all(Failed):
            counts[event.connection, event.id, event.verb] += 1
        return counts

    @cached_property
    def bodies(self) -> dict[bytes, bytes]:
        """Which body came with an id."""
        return {event.id: event.body for _, event in self.all(Delivered)}

    @cached_property
    def deliveries(self) -> dict[_Place, list[tuple[int, Delivered]]]:
        found: dict[_Place, list[tuple[int, Delivered]]] = defaultdict(list)
        for number, event in self.all(Delivered):
            found[event.channel, event.id].append((number, event))
        return found

    @cached_property
    def finished(self) -> dict[_Place, list[tuple[int, Finished]]]:
        """The FINs that did not fail; of several with one id from one connection the last ones."""
        found: dict[tuple[Channel, bytes, int], list[tuple[int, Finished]]] = defaultdict(list)
        for number, event in self.all(Finished):
            found[event.channel, event.id, event.connection].append((number, event))
        kept: dict[_Place, list[tuple[int, Finished]]] = defaultdict(list)
        for (channel, message_id, connection), fins in found.items():
            kept[channel, message_id] += fins[self.failures.get((connection, message_id, "FIN"), 0) :]
        return {place: fins for place, fins in kept.items() if fins}

    @cached_property
    def settled(self) -> dict[int, int]:
        """Connections whose commands were all done, and when that was known."""
        return {event.connection: number for number, event in self.all(Left) if event.settled}

    @cached_property
    def saved(self) -> dict[int, int]:
        """For each life the number of the event up to which a later life knows everything."""
        marks: dict[int, int] = defaultdict(int)
        for _, event in self.all(Stored):
            marks[event.life] = max(marks[event.life], event.covers)
        for life, (number, death) in self.deaths.items():
            if death.how == STOP:
                marks[life] = number
        return marks

    @cached_property
    def destroyed(self) -> set[bytes]:
        return {body for _, event in self.all(Damaged) for body in event.bodies}

    def is_stored(self, connection: int, life: int) -> bool:
        """Whether what a consumer said was done, and is known in the lives after this one."""
        return connection in self.settled and self.settled[connection] < self.saved[life]

    def may_be_lost(self, body: bytes, topic: str) -> bool:
        """By damage, or by the way its broker died, in spite of its OK."""
        if body in self.destroyed:
            return True
        death = self.deaths.get(self.good[body])
        return death is not None and _costs(death[1], topic)

    def may_have_lost(self, topic: str) -> bool:
        """Whether messages of it may be gone, which is found out when they are read: till then they are counted."""
        return bool(self.destroyed) or any(_costs(death, topic) for _, death in self.deaths.values())

    def forward_jumps(self, start: int, end: int) -> float:
        """By how much the wall clock was put forward between two events, at most."""
        return sum(max(0.0, jump.seconds) for number, jump in self.all(Jumped) if number > start and jump.began < end)


def _costs(death: Died, topic: str) -> bool:
    """Whether a topic of this class may lose messages in such a death."""
    return (topic == MEMORY and death.how in (KILL, POWER)) or (topic == OS and death.how == POWER)


def lost(history: History) -> Iterator[str]:
    """To be asked when everything is drained."""
    finished: dict[Channel, set[bytes]] = defaultdict(set)
    for channel, message_id in history.finished:
        finished[channel].add(history.bodies[message_id])
    for channel in history.channels:
        for body, life in history.good.items():
            is_here = history.sent[body][1].topic == channel.topic
            if is_here and body not in finished[channel] and not history.may_be_lost(body, channel.topic):
                yield f"lost: {name(body)} was answered with OK in life {life} and is not in {channel}"


def stranded(history: History) -> Iterator[str]:
    """
    To be asked when everything is drained. A channel that was given a message with a higher id has passed a refused
    one, and need not get it.
    """
    delivered: dict[Channel, list[tuple[int, bytes]]] = defaultdict(list)
    for number, event in history.all(Delivered):
        delivered[event.channel].append((number, event.id))
    for number, found in history.all(Found):
        for channel in history.channels:
            if channel.topic != found.topic:
                continue
            before = [message_id for at, message_id in delivered[channel] if at < number]
            highest = max([history.past.highest.get(channel, b""), *before])
            after = {message_id for at, message_id in delivered[channel] if at > number}
            destroyed = {message_id for at, event in history.all(Damaged) if at > number for message_id in event.ids}
            for message_id in sorted(found.ids - after - destroyed):
                if message_id > highest:
                    yield f"stranded: {message_id.decode()} is in the files of {channel.topic} and not in {channel}"


def invented(history: History) -> Iterator[str]:
    ids: dict[bytes, bytes] = {}
    refused = {(event.body, event.life) for _, event in history.all(Answered) if not event.good}
    for number, event in history.all(Delivered):
        what = f"{name(event.body)} with id {event.id.decode()} in {event.channel}, life {event.life}"
        sent = history.sent.get(event.body)
        if event.body in history.past.bodies:
            continue  # came_back tells
        if sent is None or sent[0] > number:
            yield f"invented: {what} was never sent"
        elif sent[1].topic != event.channel.topic:
            yield f"invented: {what} was sent to {sent[1].topic}"
        elif (event.body, event.life) in refused:
            yield f"invented: {what} was refused"
        if event.id in history.past.ids or ids.setdefault(event.body, event.id) != event.id:
            yield f"invented: {what} has an id that was another's, or has got two"
    if len(set(ids.values())) != len(ids):
        yield "invented: two messages have one id"


def early(history: History) -> Iterator[str]:
    for number, event in history.all(Delivered):
        since, sent = history.sent.get(event.body, (0, None))
        if sent is not None and sent.delay_ms:
            yield from _too_early(history, event, number, sent.at + sent.delay_ms / 1000, since, sent.life)
    for since, requeue in history.all(Requeued):
        failed = history.failures.get((requeue.connection, requeue.id, "REQ"), 0)
        if not requeue.delay_ms or failed or requeue.connection not in history.prompt:
            continue
        for number, event in history.deliveries[requeue.channel, requeue.id]:
            is_next = event.life == requeue.life and event.attempts > requeue.attempts
            if is_next or (event.life > requeue.life and history.is_stored(requeue.connection, requeue.life)):
                yield from _too_early(history, event, number, requeue.at + requeue.delay_ms / 1000, since, requeue.life)


def _too_early(history: History, event: Delivered, number: int, due: float, since: int, life: int) -> Iterator[str]:
    if event.life != life:  # due times outlive a process as wall-clock time
        due -= history.forward_jumps(since, number)
    if event.at < due - SLACK_SECONDS:
        yield f"early: {name(event.body)} by {due - event.at:.3f} s in {event.channel}, life {event.life}"


def attempts(history: History) -> Iterator[str]:
    whole = _lives_read_to_the_end(history)
    for (channel, message_id), deliveries in history.deliveries.items():
        what = f"attempts: {name(deliveries[0][1].body)} in {channel}"
        of_life: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, event in deliveries:
            of_life[event.life].append((number, event.attempts))
        floor = 0
        for life, counted in sorted(of_life.items()):
            seen = sorted(count for _, count in counted)
            if len(set(seen)) != len(seen):
                yield f"{what} came twice with the same number in life {life}: {seen}"
            if seen[0] <= floor:
                yield f"{what} came with {seen} in life {life}, and {floor} were stored before"
            born = history.sent.get(history.bodies[message_id])
            if born and born[1].life == life and (channel, life) in whole and seen != [*range(1, len(seen) + 1)]:
                yield f"{what} came with {seen} in life {life}, in which it was published"
            stored = [count for number, count in counted if number < history.saved[life] or _stopped(history, life)]
            floor = max([floor, *stored])


def _stopped(history: History, life: int) -> bool:
    return life in history.deaths and history.deaths[life][1].how == STOP


def _lives_read_to_the_end(history: History) -> set[tuple[Channel, int]]:
    """Channels and lives of which every delivery is noted."""
    connected = {(event.connection, event.channel, event.life) for _, event in history.all(Connected)}
    unsettled = {(channel, life) for connection, channel, life in connected if connection not in history.settled}
    return {(channel, life) for _, channel, life in connected} - unsettled


def denied(history: History) -> Iterator[str]:
    for _, event in history.all(Failed):
        if event.connection in history.prompt:
            yield f"denied: {event.verb} of {event.id.decode()} in {event.channel}, life {event.life}"


def came_back(history: History) -> Iterator[str]:
    for _, event in history.all(Delivered):
        if event.body in history.past.bodies:
            yield f"came back: {name(event.body)} in {event.channel}, life {event.life}, after all was drained"
    for (channel, message_id), fins in history.finished.items():
        for _, fin in fins:
            failed = history.failures.get((fin.connection, message_id, "FIN"), 0)
            certain = fin.connection in history.prompt and not failed
            stored = history.is_stored(fin.connection, fin.life)
            for _, event in history.deliveries[channel, message_id]:
                again = certain and event.life == fin.life and event.attempts > fin.attempts
                if again or (stored and event.life > fin.life):
                    what = f"{name(event.body)} in {channel}, life {event.life}"
                    yield f"came back: {what}, was finished in life {fin.life}"


def counters(history: History) -> Iterator[str]:
    started: dict[tuple[Channel, int], tuple[int, Counted]] = {}
    for number, count in history.all(Counted):
        what = f"counters: {count.channel} in life {count.life}, {count.when}:"
        if count.in_flight != count.held:
            yield f"{what} {count.in_flight} in flight, and consumers hold {count.held}"
        if count.when == START and not count.held:
            started[count.channel, count.life] = number, count
            low, high = _unfinished(history, count.channel, number)
            if not low <= count.waiting <= high:
                yield f"{what} {count.waiting} wait, and by a recount {low} to {high} should"
        elif count.when == START:
            before = started[count.channel, count.life][1].waiting
            may_be_less = history.may_have_lost(count.channel.topic) and count.waiting < before
            if count.waiting != before - count.held and not may_be_less:
                yield f"{what} {count.waiting} wait after {count.held} of {before} were taken"
        else:
            yield from _wrong_in_the_end(history, number, count, what, started.get((count.channel, count.life)))


def _wrong_in_the_end(
    history: History, number: int, count: Counted, what: str, start: tuple[int, Counted] | None
) -> Iterator[str]:
    if count.waiting or count.topic_depth:
        yield f"{what} {count.waiting} wait, and {count.topic_depth} in the topic"
    sent = [
        event.body for _, event in history.all(Sent) if (event.topic, event.life) == (count.channel.topic, count.life)
    ]
    low = len([body for body in sent if body in history.good])
    refused = {event.body for _, event in history.all(Answered) if not event.good}
    high = len([body for body in sent if body not in refused])
    for counter, found in (("", count.message_count), ("topic's ", count.topic_message_count)):
        if not low <= found <= high:
            yield f"{what} the {counter}message_count is {found}, and {low} to {high} were published"
    if start is not None and not sent and not history.destroyed:
        ids = {e.id for n, e in history.all(Delivered) if start[0] < n < number and e.channel == count.channel}
        may_be_less = history.may_have_lost(count.channel.topic) and len(ids) < start[1].waiting
        if len(ids) != start[1].waiting and not may_be_less:
            yield f"{what} {start[1].waiting} waited at the start, and {len(ids)} were delivered"


def _unfinished(history: History, channel: Channel, number: int) -> tuple[int, int]:
    """How many messages, at least and at most, are unfinished in a channel at a start."""
    told, stored = set[bytes](), set[bytes]()
    for at, event in history.all(Finished):
        if event.channel == channel and at < number:
            told.add(history.bodies[event.id])
    for (place, message_id), fins in history.finished.items():
        before = [fin for at, fin in fins if at < number]
        if place == channel and any(history.is_stored(fin.connection, fin.life) for fin in before):
            stored.add(history.bodies[message_id])
    sent = [body for body, (at, event) in history.sent.items() if event.topic == channel.topic and at < number]
    must = [b for b in sent if b in history.good and b not in told and not history.may_be_lost(b, channel.topic)]
    return len(must), len([body for body in sent if body not in stored])


def name(body: bytes) -> str:
    """What a message is called in a report."""
    return repr(body[:40])


CHECKS: tuple[Callable[[History], Iterator[str]], ...] = (
    stranded,
    lost,
    invented,
    early,
    attempts,
    denied,
    came_back,
    counters,
)


def wrongs(journal: Journal) -> list[str]:
    """All that is wrong with a history that ends with everything drained."""
    history = History(journal)
    return [wrong for check in CHECKS for wrong in check(history)]


def repeats(journal: Journal) -> int:
    """How many deliveries came after a FIN for the same message was sent: allowed, and counted."""
    history = History(journal)
    return sum(
        number > fins[0][0] for place, fins in history.finished.items() for number, _ in history.deliveries[place]
    )

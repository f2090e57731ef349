"""
POST /v2/subscribe/poll: requests that wait for messages.

    {"messages": [{"id", "timestamp", "attempts", "body", "encoding", "token", "headers"}, ...]}
    {"messages": [], "paused": true, "draining": false}                 where one of the two is true

Theory of operation. The polls of a channel share one subscription, `Polls`. Its credit is the
number of messages in flight plus the number that the waiting polls want, so a message is delivered only when a poll
waits for it. The messages of a turn are divided at its end: the oldest poll gets as many as it wants, then the next
one. A poll without messages is answered when its time is over, or when a pause or drain begins, of which its client
learns so; a poll that comes later waits as usual.

A client that leaves while it waits wants nothing any more. Messages for which no poll is left, because its client has
left in the same turn, are requeued at once.

The subscription is left when there was no poll for IDLE_SECONDS and nothing is in flight: until then tokens are valid,
and an ephemeral channel stays. Polls by different identities, or with different message timeouts, share none.
"""

from __future__ import annotations

from typing import NamedTuple

from nsqtw.api.subscribe.right import StandingRight
from nsqtw.api.subscribe.subscribers import Subscribers
from nsqtw.api.subscribe.subscription import USUAL, Message, Source, user_agent
from nsqtw.core.timers import Timer
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, INTERNAL_ERROR, Answer, document

KIND = "poll"
IDLE_SECONDS = 60.0
"""The time without a poll after which a subscription is left."""


class _Key(NamedTuple):
    """The common properties of the polls of a subscription."""

    source: Source
    identity: str


class PollTable:
    """The polls of a broker."""

    def __init__(self, subscribers: Subscribers) -> None:
        self._subscribers = subscribers
        self._polls: dict[_Key, Polls] = {}

    def wait(self, request: HttpRequest, source: Source, count: int, seconds: float) -> None:
        """Answer `request` with up to `count` messages, or with none after `seconds`. Refused."""
        key = _Key(source, request.identity)
        polls = self._polls.get(key)
        if polls is None or polls.is_polled:
            self._subscribers.enter(request, KIND)
        Poll(polls or self._new(key, request), request, count, seconds)

    def _new(self, key: _Key, request: HttpRequest) -> Polls:
        subscribers = self._subscribers
        polls = Polls(subscribers, self._polls, key, request)
        try:
            polls.join()
        except Exception:
            subscribers.leave(KIND)
            raise
        self._polls[key] = polls
        return polls


class Polls(Timer):
    """
    The polls that share a subscription. Reader, and Connection of turns. They are as many subscribers as polls wait,
    and one while none does.
    """

    def __init__(self, subscribers: Subscribers, table: dict[_Key, Polls], key: _Key, request: HttpRequest) -> None:
        super().__init__()
        self.subscribers = subscribers
        self.source = key.source
        self._table = table
        self._key = key
        self._subscription = subscribers.new(key.source, request, self)
        self._waiting: dict[Poll, None] = {}
        self._wanted_count = 0
        """Messages that the waiting polls want."""
        self._arrived: list[Message] = []
        self._is_ready = False
        self._state = USUAL
        self._end: Answer | None = None
        self._last_poll = 0.0
        self._is_closed = False

    def join(self) -> None:
        """Subscribe to the channel. Refused."""
        self.subscribers.join(self._subscription)
        self._state = self._subscription.state

    @property
    def is_polled(self) -> bool:
        """Whether a poll waits."""
        return bool(self._waiting)

    # -- from polls

    def enter(self, poll: Poll, request: HttpRequest) -> None:
        """A poll waits."""
        self._waiting[poll] = None
        self._wanted_count += poll.count
        client = self._subscription.client
        client.remote_address = request.client
        client.user_agent = user_agent(request)
        self._adjust()
        self.wake()

    def leave(self, poll: Poll) -> None:
        """A poll does not wait any more."""
        del self._waiting[poll]
        self._wanted_count -= poll.count
        now = self._last_poll = self.subscribers.pump.now()
        if self._waiting or self._is_closed:
            self.subscribers.leave(KIND)
        else:
            self.subscribers.broker.timers.schedule(now + IDLE_SECONDS, self)
        self._adjust()
        self.subscribers.pump.wake()

    def wake(self) -> None:
        """Look at the polls at the end of the turn."""
        self.subscribers.pump.changed(self)

    # -- Reader

    def ready(self, error: Answer | None) -> None:
        """Reader API"""
        if error is not None:
            self._end = error
        self._is_ready = True
        self._adjust()
        self.wake()

    def deliver(self, messages: list[Message]) -> None:
        """Reader API"""
        self._arrived += messages
        self.wake()

    def freed(self) -> None:
        """Reader API"""
        self._adjust()

    def state_changed(self) -> None:
        """Reader API"""
        before, self._state = self._state, self._subscription.state
        if any(is_so and not before[name] for name, is_so in self._state.items()):
            for poll in self._waiting:
                poll.is_over = True
            self.wake()

    def end(self, answer: Answer) -> None:
        """Reader API"""
        self._end = answer
        self.wake()

    # -- from the turns

    def on_timer(self, now: float) -> float | None:
        """Timer API: perhaps nobody polls any more."""
        if self._waiting or self._end is not None:
            return None
        if self._subscription.in_flight_count:
            return now + IDLE_SECONDS
        if now < self._last_poll + IDLE_SECONDS:
            return self._last_poll + IDLE_SECONDS
        self._close(now)
        return None

    def flush(self, now: float) -> None:
        """Connection API of the pump: answer the polls that have messages, or whose time is over."""
        arrived, self._arrived = self._arrived, []
        for poll in list(self._waiting):
            if not poll.is_patient:
                poll.abort()
            elif poll.error is not None:
                poll.answer(poll.error)
            elif arrived:
                given, arrived = arrived[: poll.count], arrived[poll.count :]
                poll.answer(self._document(given))
                self.subscribers.count_delivered(KIND, len(given))
            elif self._end is not None:
                poll.answer(self._end)
            elif poll.is_over and self._is_ready:
                poll.answer(self._document([]))
        if arrived:
            self.subscribers.requeue(
                self.source.topic, self.source.channel, [message["token"] for message in arrived], 0.0
            )
        if self._end is not None and not self._is_closed:
            self._close(now)

    def abort(self) -> None:
        """Connection API of the pump: something in here is broken."""
        if not self._is_closed:
            self._close(self.subscribers.pump.now())
        for poll in list(self._waiting):
            poll.abort()

    # -- inside

    def _document(self, messages: list[Message]) -> Answer:
        return document({"messages": messages, **(self._state if self._state != USUAL else {})})

    def _adjust(self) -> None:
        """Set the credit to the messages in flight and those that the polls want."""
        if not self._is_ready or self._end is not None:
            return
        wanted = self._wanted_count - len(self._arrived)
        subscription = self._subscription
        if wanted > 0:
            subscription.set_credit(subscription.in_flight_count + wanted)
            subscription.unblock()
        else:
            subscription.block()
            subscription.set_credit(subscription.in_flight_count)

    def _close(self, now: float) -> None:
        self._is_closed = True
        self._end = self._end or INTERNAL_ERROR
        self._table.pop(self._key, None)
        if not self._waiting:
            self.subscribers.leave(KIND)
        self.subscribers.broker.timers.cancel(self)
        self._subscription.leave(now)


class Poll(Timer):
    """A request that waits for up to `count` messages, for `seconds` at most."""

    def __init__(self, polls: Polls, request: HttpRequest, count: int, seconds: float) -> None:
        super().__init__()
        self.count = count
        self.is_over = False
        """Whether it is answered even without messages."""
        self.error: Answer | None = None
        """Why it gets nothing any more."""
        self._polls = polls
        self._request = request
        self._has_left = False
        self._right: StandingRight | None
        subscribers = polls.subscribers
        self._timers = subscribers.broker.timers
        self._timers.schedule(subscribers.pump.now() + seconds, self)
        self._right = subscribers.standing_right(request, polls.source, self._refuse)
        request.wait(self.leave, self._stop)
        polls.enter(self, request)

    @property
    def is_patient(self) -> bool:
        """Whether the client still waits."""
        return self._request.is_patient

    def answer(self, answer: Answer) -> None:
        """Answer it, now."""
        self.leave()
        self._request.answer(answer)

    def abort(self) -> None:
        """End the connection."""
        self.leave()
        self._request.abort()

    def on_timer(self, now: float) -> float | None:
        """Timer API"""
        self.is_over = True
        self._polls.wake()
        return None

    def _stop(self) -> None:
        """The broker stops."""
        self.answer(EXITING)

    def _refuse(self, answer: Answer) -> None:
        """The right to the channel was withdrawn."""
        self.error = answer
        self._polls.wake()

    def leave(self) -> None:
        """It does not wait any more."""
        if self._has_left:
            return
        self._has_left = True
        self._timers.cancel(self)
        if self._right is not None:
            self._right.leave()
        self._polls.leave(self)

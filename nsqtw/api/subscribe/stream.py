"""
A stream of messages to one client: the common part of server-sent events and WebSocket.

Theory of operation. A stream has a subscription of its own. The messages of a turn are written at its end, as one
piece, after a change of the channel's pause or of the broker's drain. While the client does not read, the consumer is
blocked. After `heartbeat_seconds` without output a heartbeat is sent. The stream ends when the channel is deleted, the
right to it is withdrawn, the broker stops, or the client leaves; then its messages in flight are requeued. It
ends, too, when consuming was switched off: of that it learns with its next messages, or at the time of a heartbeat.
"""

from __future__ import annotations

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from nsqtw.api.subscribe.right import StandingRight
from nsqtw.api.subscribe.subscribers import Subscribers
from nsqtw.api.subscribe.subscription import SUBSCRIBE_DISABLED, USUAL, Message, Source, State
from nsqtw.core.timers import Timer
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, Answer


@implementer(IPushProducer)
class MessageStream(Timer):
    """
    The client of `request`, which gets messages of a channel. Reader, Streamer, and Connection of turns. A subclass has
    the format.
    """

    kind = ""
    """Its name in metrics."""
    heartbeat_seconds = 15.0

    def __init__(self, subscribers: Subscribers, request: HttpRequest, source: Source) -> None:
        super().__init__()
        self._subscribers = subscribers
        self._broker = subscribers.broker
        self._pump = subscribers.pump
        self._request = request
        self._source = source
        self._subscription = subscribers.new(source, request, self)
        self._right: StandingRight | None = None
        self._messages: list[Message] = []
        self._state = USUAL
        self._last_output = 0.0
        self._end: Answer | None = None
        self._is_over = False

    def begin(self, max_in_flight: int) -> None:
        """Subscribe, and begin the answer. Refused."""
        self._subscribers.enter(self._request, self.kind)
        try:
            self._subscribers.join(self._subscription)
        except Exception:
            self._subscribers.leave(self.kind)
            raise
        self._subscription.set_credit(max_in_flight)
        now = self._last_output = self._pump.now()
        self._broker.timers.schedule(now + self.heartbeat_seconds, self)
        self._right = self._subscribers.standing_right(self._request, self._source, self.end)
        self._answer()
        self.state_changed()
        if not self._request.is_patient:
            self.abort()

    # -- the format

    def _answer(self) -> None:
        """Begin the answer."""
        raise NotImplementedError

    def _encode_messages(self, messages: list[Message]) -> bytes:
        raise NotImplementedError

    def _encode_state(self, state: State) -> bytes:
        raise NotImplementedError

    def _encode_heartbeat(self) -> bytes:
        raise NotImplementedError

    def _finish(self, answer: Answer) -> None:
        """Tell the client that the stream ends, and end the connection."""
        raise NotImplementedError

    # -- Reader

    def ready(self, error: Answer | None) -> None:
        """Reader API"""
        if error is not None:
            self.end(error)

    def deliver(self, messages: list[Message]) -> None:
        """Reader API"""
        self._messages += messages
        self._pump.changed(self)

    def freed(self) -> None:
        """Reader API"""

    def state_changed(self) -> None:
        """Reader API"""
        self._pump.changed(self)

    def end(self, answer: Answer) -> None:
        """Reader API. End the stream at the end of the turn; `answer` is what a request would be answered now."""
        self._end = self._end or answer
        self._pump.changed(self)

    # -- Streamer

    def pauseProducing(self) -> None:
        """Streamer API"""
        if not self._is_over:
            self._subscription.block()

    def resumeProducing(self) -> None:
        """Streamer API"""
        if not self._is_over:
            self._subscription.unblock()
            self._pump.wake()

    def stopProducing(self) -> None:
        """Streamer API"""

    def ended(self) -> None:
        """Streamer API"""
        self._leave(self._pump.now())

    def stop(self) -> None:
        """The broker stops."""
        self._end = self._end or EXITING
        self.flush(self._pump.now())

    # -- from the turns

    def on_timer(self, now: float) -> float | None:
        """Timer API"""
        if self._is_over:
            return None
        if not self._broker.options.http_subscribe:
            self._pump.changed(self)
        elif now >= self._heartbeat_due:
            self._send(self._encode_heartbeat(), now)
        return self._heartbeat_due

    def flush(self, now: float) -> None:
        """Connection API of the pump: write a new state, the messages of the turn, or the end."""
        if self._is_over:
            return
        if not self._broker.options.http_subscribe:
            self._messages = []  # the next consumer gets them
            self._end = self._end or SUBSCRIBE_DISABLED
        state = self._subscription.state
        if state != self._state:
            self._state = state
            self._send(self._encode_state(state), now)
        messages, self._messages = self._messages, []
        if messages:
            self._send(self._encode_messages(messages), now)
            self._subscribers.count_delivered(self.kind, len(messages))
        if self._end is not None and not self._is_over:
            answer = self._end
            self._leave(now)
            self._finish(answer)

    def abort(self) -> None:
        """Connection API of the pump: something in here is broken."""
        self._leave(self._pump.now())
        self._request.abort()

    # -- inside

    @property
    def _heartbeat_due(self) -> float:
        """When the next heartbeat is to be sent, unless there is output before."""
        return self._last_output + self.heartbeat_seconds

    def _send(self, data: bytes, now: float) -> None:
        self._last_output = now
        self._request.send(data)

    def _leave(self, now: float) -> None:
        """Leave the channel, once. The messages in flight are requeued."""
        if self._is_over:
            return
        self._is_over = True
        self._messages = []
        self._broker.timers.cancel(self)
        if self._right is not None:
            self._right.leave()
        self._subscribers.leave(self.kind)
        self._subscription.leave(now)
        self._pump.wake()

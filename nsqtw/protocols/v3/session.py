"""
Session of protocol V3: one for each connection.

Theory of operation. Frames are executed in order, STEP_FRAMES of them at once; then `is_behind` says that some may be
left. While the broker waits for an authorizer nothing is executed. Publishes are answered when they are stored:
`data_to_send` puts all that were stored since the last call into one CONFIRM. A mistake in one command is told about
that command; a frame that is none, or a command in the wrong place, ends the connection with ERROR.

The broker checks names, sizes, limits and rights, and writes the log lines (`IBroker`).

Performance: called once per frame and turn.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from zope.interface import classImplements

from nsqtw.errors import ClientError
from nsqtw.interfaces import Failed, IBroker, ICountedProtocol, ISteppedProtocol, Range
from nsqtw.protocols.fin_coalescing import FinCoalescing
from nsqtw.protocols.session import session_broker
from nsqtw.protocols.v3 import codec
from nsqtw.protocols.v3.codec import CREDIT, FIN, PUBLISH, SET, Frame, read_credit
from nsqtw.protocols.v3.frame_timeout import FrameTimeout
from nsqtw.protocols.v3.handshake import DEFAULT_HEARTBEAT, read_hello, welcome_payload
from nsqtw.protocols.v3.publishes import Confirms, Publish, PublishingSession, PublishRun, PublishWithIds
from nsqtw.protocols.v3.single_fins import FIN_BYTES
from nsqtw.protocols.v3.subscription import Subscription
from nsqtw.upgrades import Upgrade

STEP_FRAMES: Final = 256
"""Frames that are executed at once."""
IDS_PER_FRAME: Final = 32
"""So many ids count as a frame more."""
SUBSCRIBE_COST: Final = 32
"""The cost, in frames, of a SUBSCRIBE: it may create a channel."""
REFUSAL_COST: Final = 4
"""The cost, in frames, of a refusal, which is logged."""
MAX_UNREAD: Final = 256 * 1024
"""Bytes that a client may leave unread before it is not read from either."""
PIECE_COST: Final = 256
"""What each piece of the output counts besides its bytes."""
FRAME_OVERHEAD: Final = 256 * 1024
"""Bytes of a PUBLISH besides its bodies: the topic and the headers."""
_FLAGS: Final = {PUBLISH: codec.HEADERS | codec.DELAYS, CREDIT: SET}
"""The flags that a frame may have; others have none."""
_VERBS: Final = {FIN: "FIN", codec.REQ: "REQ", codec.NACK: "REQ", codec.TOUCH: "TOUCH"}


class V3Session(PublishingSession):
    """One connection. See IProtocol for the callers."""

    def __init__(self, broker: IBroker, changed: Callable[[], None], now: float) -> None:
        super().__init__()
        self._broker = broker
        self._commands = session_broker(broker)
        self._changed = changed
        self._reader = codec.FrameReader()
        self._out: list[bytes] = []
        self._confirms = Confirms()
        self._tells_ids = False
        self._confirmed_with_ids: list[tuple[int, list[int]]] = []
        """The PUBLISH frames to confirm with the ids of their messages, for a client that wants them."""
        self._pending = 0
        """The PUBLISH frames whose outcome is not known."""
        self._subscriptions: dict[int, Subscription] = {}
        self._fin_coalescing = FinCoalescing(FIN_BYTES)
        self._answered_count = 0
        """Messages that FIN, REQ and NACK of this read were about."""
        self._topic = b""
        self._topic_name = ""
        """The last topic: most publishers publish to one."""
        self._expects = False
        """Whether there was one."""
        self._has_greeted = False
        """Whether HELLO has come."""
        self._is_behind = False
        self._spent = 0
        """The cost of frames of this step beyond the one that each counts as."""
        self._is_awaited = False
        """Whether `data_to_send` is called in this turn in any case."""
        self._is_paused = False
        self._unread = 0
        """Bytes written since the client stopped reading."""
        self._rejected = 0
        """PUBLISH frames that were refused, and are not counted by the broker yet."""
        self._is_in_frame = False
        """Whether the last chunk ended within a frame."""
        self._frame_timeout = FrameTimeout(broker, self._count_unfinished, self._on_slow_frame)
        self._has_ended = False
        self._says_goodbye = False
        """Whether the last frame is to be CLOSE."""
        self._heartbeat = DEFAULT_HEARTBEAT
        self._last_read = now
        self._cancel_heartbeat: Callable[[], None] = broker.schedule(now + DEFAULT_HEARTBEAT, self._on_heartbeat)
        broker.on_drain(self._on_drain)

    # -- IProtocol

    @property
    def closing(self) -> bool:
        """IProtocol API."""
        return self._has_ended and not self._pending and not self._says_goodbye

    @property
    def wants_data(self) -> int:
        """IProtocol API."""
        if self._has_ended or self._is_behind or self._unread >= MAX_UNREAD or self._commands.is_waiting:
            return 0
        return self._fin_coalescing.min_read_bytes

    @property
    def is_behind(self) -> bool:
        """ISteppedProtocol API."""
        return self._is_behind and not (self._has_ended or self._commands.is_waiting)

    @property
    def refused(self) -> str:
        """Session API."""
        return str(self._broker.exceeded)

    @property
    def unfinished_bytes(self) -> int:
        """ICountedProtocol API."""
        return self._reader.unfinished_bytes

    def receive_data(self, chunk: bytes, now: float) -> None:
        """IProtocol API."""
        if self._has_ended:
            return
        self._is_awaited = True
        if chunk:
            self._last_read = now
            self._reader.feed(chunk)
        self._run(now)
        if self._answered_count or (self._subscriptions and self._fin_coalescing.min_read_bytes > 1):
            self._fin_coalescing.record(self._answered_count, self._in_flight(), now)
            self._answered_count = 0

    def receive_end(self, now: float) -> None:
        """IProtocol API."""
        self._end()

    def data_to_send(self) -> list[bytes | Upgrade]:
        """IProtocol API."""
        self._is_awaited = False
        out: list[Any] = self._out
        self._out = []
        if self._confirms.count:
            out.append(self._confirms.take())
        elif self._confirmed_with_ids:
            out.append(codec.confirm_with_ids(self._confirmed_with_ids))
            self._confirmed_with_ids = []
        if self._says_goodbye and not self._pending:
            self._says_goodbye = False
            out.append(codec.frame_of(codec.CLOSE, 0))
        if self._is_paused:
            self._unread += sum(map(len, out)) + PIECE_COST * len(out)
        return out

    def pause_delivery(self) -> None:
        """IProtocol API."""
        self._is_paused = True
        for subscription in self._subscriptions.values():
            if subscription.consumer is not None:
                subscription.consumer.pause()

    def resume_delivery(self, now: float) -> None:
        """IProtocol API."""
        self._is_paused = False
        self._unread = 0
        if not self._has_ended:
            for subscription in self._subscriptions.values():
                if subscription.consumer is not None:
                    subscription.consumer.resume()

    def connection_lost(self, now: float) -> None:
        """IProtocol API."""
        self._has_ended = True
        self._cancel_heartbeat()
        self._reader.forget()
        self._subscriptions.clear()
        self._out.clear()
        self._broker.leave()

    # -- frames

    def _run(self, now: float) -> None:  # noqa: C901  # a call is a cost of each frame
        """Execute what has come, STEP_FRAMES of it at most. A frame that is none ends the connection."""
        try:
            self._is_behind = False
            self._spent = 0
            if self._rejected:
                rejected, self._rejected = self._rejected, 0
                self._had_no_effect(rejected, now)
            count, reader, broker = 0, self._reader, self._commands
            while reader.has_more:
                if count + self._spent >= STEP_FRAMES or broker.is_waiting:
                    self._is_behind, self._is_in_frame = True, False
                    return
                count += 1
                if self._expects and (body := reader.next_publish()) is not None:
                    self._publish_next(body, now)
                    continue
                if reader.fin_head and (ranges := reader.next_fins()):
                    self._answer(FIN, reader.fin_number, ranges, 0.0, "", now)
                    continue
                frame = reader.next_frame()
                if frame is None:
                    if count > 1 or not self._is_in_frame:
                        self._is_in_frame = True
                        self._frame_timeout.begin(now)
                    return
                kind = frame.kind
                flags = frame.flags
                if flags and flags & ~_FLAGS.get(kind, 0):
                    raise ClientError("E_INVALID", f"unknown flags {flags} in a frame of type {kind}")
                if not self._has_greeted and kind != codec.HELLO:
                    raise ClientError("E_INVALID", "HELLO must be the first frame")
                if kind == PUBLISH:
                    self._publish(frame, now)
                elif kind == FIN:
                    self._finish(frame, now)
                else:
                    self._execute(frame, now)
            self._is_in_frame = False
            if count:
                reader.release()
        except ClientError as error:
            self._broker.refused(error)
            self._fail(error)

    def _execute(self, frame: Frame, now: float) -> None:
        """Execute a frame other than PUBLISH and FIN. ClientError."""
        kind = frame.kind
        if kind == CREDIT:
            self._commands.had_no_effect(now)
            messages, size = read_credit(frame)
            subscription = self._subscriptions.get(frame.id)
            if subscription is not None:
                subscription.change_credit(messages, size, frame.flags == SET)
        elif kind in (codec.REQ, codec.NACK, codec.TOUCH):
            ranges, delay, reason = codec.read_ranges(frame, self._broker.max_range)
            self._answer(kind, frame.id, ranges, delay, reason, now)
        elif kind == codec.PING:
            self._commands.had_no_effect(now)
            self._write(codec.frame_of(codec.PONG, frame.id))
        elif kind == codec.PONG:
            self._commands.had_no_effect(now)
        elif kind == codec.SUBSCRIBE:
            self._subscribe(frame, now)
        elif kind == codec.UNSUBSCRIBE:
            self._unsubscribe(frame, now)
        elif kind == codec.HELLO:
            self._greet(frame, now)
        elif kind == codec.AUTH:
            self._pending += 1
            self._broker.authorize(frame.payload, partial(self._authorized, frame.id), now)
        elif kind == codec.CLOSE:
            self._says_goodbye = True
            self._end()
        else:
            raise ClientError("E_INVALID", f"unknown frame type {kind}")

    # -- handshake

    def _greet(self, frame: Frame, now: float) -> None:
        """HELLO. ClientError."""
        if self._has_greeted:
            raise ClientError("E_INVALID", "HELLO must be the first frame")
        self._has_greeted = True
        broker = self._broker
        hello = read_hello(frame, broker.max_heartbeat_interval)
        broker.introduce(hello.client_id, hello.hostname, hello.user_agent)
        self._tells_ids = hello.wants_ids
        self._heartbeat = hello.heartbeat_interval
        self._cancel_heartbeat()
        if self._heartbeat:
            self._cancel_heartbeat = broker.schedule(now + self._heartbeat, self._on_heartbeat)
        if hello.secret and broker.needs_authorization:
            broker.authorize(hello.secret, self._welcome, now)
        else:
            self._welcome(None)

    def _welcome(self, error: ClientError | None) -> None:
        """The secret of HELLO is known, or there is none."""
        if error is not None:
            self._fail(error)
            return
        self._take_large_frames()
        payload = welcome_payload(self._broker, self._heartbeat, self._max_frame_size, tells_ids=self._tells_ids)
        self._write(codec.frame_of(codec.WELCOME, 0, payload))
        if self._broker.is_draining:
            self._on_drain()

    @property
    def _max_frame_size(self) -> int:
        return int(self._broker.max_body_size + self._broker.max_msg_size + FRAME_OVERHEAD)

    def _take_large_frames(self) -> None:
        """Keep as much of a frame as a publish needs, once the client has shown a secret, if it must."""
        if not self._broker.needs_authorization:
            self._reader.max_size = self._max_frame_size

    def _authorized(self, number: int, error: ClientError | None) -> None:
        """The answer of AUTH."""
        self._take_large_frames()
        if error is not None:
            self._pending -= 1
            self._fail(error)
        elif self._tells_ids:
            self.published_with_ids([(number, [])])
        else:
            self.published(number, None)

    # -- publishing

    def _publish(self, frame: Frame, now: float) -> None:
        """A PUBLISH. ClientError."""
        topic, offset = codec.read_topic(frame)
        if topic != self._topic:
            self._topic, self._topic_name = topic, _name(topic)
            self._reader.expect(topic)
            self._expects = True
        if not frame.flags:
            self._publish_packed(frame.id, frame.buffer, offset, frame.stop, now)
            return
        bodies, headers, delays = codec.read_publish(frame, offset, self._broker.max_msg_size)
        self._pending += 1
        if self._tells_ids:
            told = PublishWithIds(self, [frame.id])
            self._commands.publish(self._topic_name, bodies, 0, told, now, headers, delays, False, told.on_assigned)
        else:
            self._commands.publish(self._topic_name, bodies, 0, Publish(self, frame.id), now, headers, delays)

    def _publish_packed(self, number: int, buffer: bytes, start: int, stop: int, now: float) -> None:
        """A PUBLISH without flags, whose messages are `buffer[start:stop]`. ClientError."""
        self._pending += 1
        try:
            if self._tells_ids:
                told = PublishWithIds(self, [number])
                self._commands.publish_packed(self._topic_name, buffer, start, stop, told, now, told.on_assigned)
            else:
                self._commands.publish_packed(self._topic_name, buffer, start, stop, Publish(self, number), now)
        except ValueError:
            self._pending -= 1
            raise codec.invalid(PUBLISH) from None

    def _publish_next(self, body: bytes, now: float) -> None:
        """
        A PUBLISH without flags for the last topic, and those that came with it and are like it. `body` is empty if it
        has several messages. ClientError.
        """
        reader = self._reader
        number = reader.number
        if not body:
            self._publish_packed(number, reader.buffer, reader.start, reader.stop, now)
            return
        self._pending += 1
        if not reader.has_more and not self._tells_ids:
            self._commands.publish(self._topic_name, [body], 0, Publish(self, number), now)
            return
        numbers, bodies = reader.next_like(body)
        numbers.insert(0, number)
        bodies.insert(0, body)
        if self._tells_ids:
            told = PublishWithIds(self, numbers)
            self._commands.publish(self._topic_name, bodies, 0, told, now, None, None, True, told.on_assigned)
        else:
            self._commands.publish(self._topic_name, bodies, 0, PublishRun(self, numbers), now, None, None, True)

    def await_parts(self, count: int) -> None:
        """PublishingSession API."""
        self._pending += count - 1

    def published(self, number: int, error: ClientError | None) -> None:
        """PublishingSession API."""
        self._pending -= 1
        if error is not None:
            self._reject([number], error)
            return
        self._confirms.add(number)
        if not self._is_awaited:
            self._is_awaited = True
            self._changed()

    def published_run(self, numbers: list[int], error: ClientError | None) -> None:
        """PublishingSession API."""
        self._pending -= 1
        if error is not None:
            self._reject(numbers, error)
            return
        self._confirms.add_run(numbers)
        if not self._is_awaited:
            self._is_awaited = True
            self._changed()

    def published_with_ids(self, frames: list[tuple[int, list[int]]]) -> None:
        """PublishingSession API."""
        self._pending -= 1
        self._confirmed_with_ids += frames
        if not self._is_awaited:
            self._is_awaited = True
            self._changed()

    def _reject(self, numbers: list[int], error: ClientError) -> None:
        self._spent += REFUSAL_COST * len(numbers)
        self._rejected += len(numbers)
        for number in numbers:
            self._write(codec.frame_of(codec.REJECT, number, codec.error_payload(error)))

    # -- subscriptions

    def _subscribe(self, frame: Frame, now: float) -> None:
        topic, channel, messages, size, timeout = codec.read_subscribe(frame)
        number = frame.id
        if number in self._subscriptions:
            raise ClientError("E_INVALID", f"subscription {number} exists")
        self._spent += SUBSCRIBE_COST
        self._commands.had_no_effect(now)
        subscription = Subscription(number, messages, size, self._write, self._write_messages, self._over)
        self._subscriptions[number] = subscription
        self._reader.fin_head = b""  # FINs are expected for the consumer that they are for
        seconds = timeout / 1000 if timeout else None
        consumer = self._broker.consume(_name(topic), _name(channel), subscription, now, seconds)
        if self._is_paused:
            consumer.pause()
        subscription.begin(consumer)

    def _unsubscribe(self, frame: Frame, now: float) -> None:
        self._commands.had_no_effect(now)
        subscription = self._subscriptions.pop(frame.id, None)
        payload = b""
        if subscription is None:
            payload = codec.error_payload(ClientError("E_INVALID", "not subscribed"))
        elif subscription.consumer is not None:
            subscription.consumer.leave()
        self._write(codec.frame_of(codec.UNSUBSCRIBED, frame.id, payload))

    def _over(self, subscription: Subscription, error: ClientError | None) -> None:
        """A subscription has ended; with an error the connection does, too."""
        self._subscriptions.pop(subscription.number, None)
        if error is not None and subscription.consumer is not None:
            subscription.consumer.pause()
        if error is not None and not self._has_ended:
            self._fail(error)

    def _finish(self, frame: Frame, now: float) -> None:
        """A FIN. ClientError."""
        if frame.stop - frame.start != codec.RANGE_BYTES:
            ranges, _, _ = codec.read_ranges(frame, self._broker.max_range)
        else:
            ranges = [codec.unpack_range(frame.buffer, frame.start)]
            subscription = self._subscriptions.get(frame.id)
            if subscription is not None and subscription.consumer is not None:
                self._reader.expect_fins(frame.id, subscription.consumer.next_ranges)
        self._answer(FIN, frame.id, ranges, 0.0, "", now)

    def _answer(self, kind: int, number: int, ranges: Sequence[Range], delay: float, reason: str, now: float) -> None:
        """Execute a FIN, REQ, NACK or TOUCH of the subscription `number`. ClientError."""
        subscription = self._subscriptions.get(number)
        failed: Failed | None
        if subscription is None or not subscription.is_open or subscription.consumer is None:
            verb = _VERBS[kind]
            error = ClientError(f"E_{verb}_FAILED", f"{verb} failed not subscribed", fatal=False)
            self._broker.refused(error)
            failed = Failed(error, ranges)
        else:
            try:
                if kind == FIN:
                    failed = subscription.consumer.finish_ranges(ranges, now)
                elif kind == codec.TOUCH:
                    failed = subscription.consumer.touch_ranges(ranges, now)
                else:
                    failed = subscription.consumer.requeue_ranges(ranges, delay, now, reason)
            except ClientError as error:  # which the broker has logged
                self._fail(error)
                return
        if failed is not None:
            self._spent += REFUSAL_COST
            payload = codec.failed_payload(kind, failed.error, failed.ranges)
            self._write(codec.frame_of(codec.FAILED, number, payload))
            self._had_no_effect(min(sum([count for _, count in failed.ranges]), self._broker.max_range), now)
        total = 0
        for _, count in ranges:
            total += count
        self._spent += total // IDS_PER_FRAME
        if kind != codec.TOUCH:
            self._answered_count += total

    def _had_no_effect(self, count: int, now: float) -> None:
        """Have the broker count what was refused. It may want the next frames later. ClientError."""
        for _ in range(count):
            self._commands.had_no_effect(now)

    def _count_unfinished(self) -> int:
        return self._reader.unfinished_bytes

    def _on_slow_frame(self) -> bool:
        """A frame does not go on coming. Returns whether that is the client's fault, and the connection ends."""
        if self._has_ended or not self.wants_data:
            return self._has_ended
        error = ClientError("E_TIMEOUT", "the rest of a frame did not come in time")
        self._broker.refused(error)
        self._fail(error)
        return True

    def _in_flight(self) -> int:
        """Return how many messages are in flight."""
        count = 0
        for subscription in self._subscriptions.values():
            if subscription.consumer is not None:
                count += subscription.consumer.in_flight
        return count

    # -- time and notices

    def _on_heartbeat(self, now: float) -> None:
        if self._has_ended:
            return
        if not self.wants_data:
            self._last_read = now  # the broker takes long, or a slow reader, which the connection detects
        silent = now - self._last_read
        if silent >= 2 * self._heartbeat:
            error = ClientError("E_TIMEOUT", "nothing was read for two heartbeat intervals")
            self._broker.refused(error)
            self._fail(error)
            return
        if silent >= self._heartbeat:
            self._write(codec.frame_of(codec.PING, 0))
        step = self._heartbeat * (2 if silent >= self._heartbeat else 1)
        self._cancel_heartbeat = self._broker.schedule(self._last_read + step, self._on_heartbeat)

    def _on_drain(self) -> None:
        self._write(codec.frame_of(codec.DRAINING, 0, b"the broker drains: publish to another nsqd"))

    # -- inside

    def _write(self, piece: bytes) -> None:
        self._out.append(piece)
        if not self._is_awaited:
            self._is_awaited = True
            self._changed()

    def _write_messages(self, head: bytes, frames: bytes) -> None:
        """Write a large DELIVER."""
        self._out += (head, frames)
        if not self._is_awaited:
            self._is_awaited = True
            self._changed()

    def _fail(self, error: ClientError) -> None:
        """The connection ends with this error, which is logged."""
        self._write(codec.frame_of(codec.ERROR, 0, codec.error_payload(error)))
        self._says_goodbye = False
        self._end()

    def _end(self) -> None:
        """Read and deliver nothing more; publishes are still answered."""
        self._has_ended = True
        self._reader.forget()
        for subscription in self._subscriptions.values():
            if subscription.consumer is not None:
                subscription.consumer.pause()
        self._changed()


def _name(raw: bytes) -> str:
    """Return a name as text; of bytes that are none, one that the broker refuses."""
    return raw.decode("utf-8", "replace")


# Not by a decorator: with one, mypyc does not make a native class of it.
classImplements(V3Session, ISteppedProtocol, ICountedProtocol)

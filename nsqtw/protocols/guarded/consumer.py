"""
One subscription of a guarded connection.

Performance: called once per span that is delivered and once per command about messages.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Sequence

from zope.interface import classImplements

from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.client import Client
from nsqtw.core.consumer import Consumer
from nsqtw.core.segment import consecutive_ids
from nsqtw.errors import BackendError, ClientError
from nsqtw.gocompat.text import quoted
from nsqtw.interfaces import BytesLike, Failed, IChannel, IConsumer, IReceiver, Range
from nsqtw.protocols.guarded.byte_credit import ByteCredit
from nsqtw.protocols.guarded.messages import Batch
from nsqtw.protocols.parameters import message_id_of
from nsqtw.protocols.subscription import BrokerSubscription

MAX_RANGE = 4096
"""Messages that one command about ranges may name: a message is looked at after the other."""
MAX_REASON = 1000
"""Characters of a reason in the log."""


class ClientChannel:
    """The part of a channel that its consumer may see."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.topic = channel.topic.name
        self.name = channel.name

    @property
    def is_paused(self) -> bool:
        """IChannel API."""
        return self._channel.paused

    @property
    def depth(self) -> int:
        """IChannel API."""
        return self._channel.depth


class ClientConsumer:
    """A consumer of a channel for `receiver`, which it joins once that is allowed. `log_refusal` writes a line."""

    def __init__(
        self,
        broker: Broker,
        client: Client,
        receiver: IReceiver,
        msg_timeout: float,
        log_refusal: Callable[[ClientError], None],
    ) -> None:
        self._broker = broker
        self._client = client
        self._receiver: IReceiver | None = receiver
        self.inner = Consumer(client, broker.timers, self._deliver, self._end, msg_timeout)
        self.next_ranges: Callable[[int], Sequence[Range]] = self.inner.in_flight.next_ranges
        """IConsumer API. Without a method of this class between, which would be called once per run of FINs."""
        self.inner.deliver_with_headers = self._deliver_with_headers
        self.inner.on_pause = self._on_pause
        self.inner.on_removed = self._on_removed
        self._byte_credit = ByteCredit(self.inner)
        self._log_refusal = log_refusal
        self._messages: BrokerSubscription | None = None
        """The commands about messages, from `joined` until `leave`."""
        self._is_paused = False
        self.is_closed = False

    def joined(self, channel: Channel) -> None:
        """The subscription was allowed."""
        if self.is_closed:
            channel.leave(self.inner)
            return
        self._messages = BrokerSubscription(self.inner, channel, self._broker.options)
        self._regulate()

    def tell_subscribed(self, error: ClientError | None) -> None:
        """The outcome of the subscription is known."""
        receiver, messages = self._receiver, self._messages
        if receiver is None:
            return
        if error is not None:
            self._receiver = None
        receiver.subscribed(error)
        if error is None and messages is not None and messages.is_paused:
            receiver.paused(True)

    def withdraw(self, error: ClientError) -> None:
        """The right to it has gone: nothing more is delivered, and the receiver is told."""
        receiver = self._receiver
        self.leave()
        if receiver is not None:
            receiver.ended(error)

    # -- IConsumer

    @property
    def channel(self) -> IChannel | None:
        """IConsumer API."""
        return None if self._messages is None else ClientChannel(self._messages.channel)

    @property
    def in_flight(self) -> int:
        """IConsumer API."""
        return self.inner.in_flight.count

    def ready(self, count: int) -> None:
        """IConsumer API."""
        messages = self._messages
        if messages is None:
            raise self._not_subscribed()
        try:
            messages.set_ready(count)
        except ClientError as error:
            raise self._refused(error) from None

    def limit_bytes(self, limit: int) -> None:
        """IConsumer API."""
        limit = max(0, limit)
        if limit != self._byte_credit.limit:
            topic = None if self._messages is None else self._messages.channel.topic
            try:
                self._byte_credit.set_limit(limit, None if topic is None else topic.log)
            except BackendError as error:
                if topic is not None:
                    topic.read_failed(error)
            self._regulate()
            self._wake()

    def finish(self, message_id: BytesLike, now: float) -> None:
        """IConsumer API."""
        ids = [self._id(b"FIN", message_id)]
        messages = self._subscribed()
        errors = messages.finish_all(ids, now)
        self._answered(ids)
        for error in errors:
            raise self._refused(error)

    def requeue(self, message_id: BytesLike, delay: float, now: float, reason: str = "") -> None:
        """IConsumer API."""
        ids = [self._id(b"REQ", message_id)]
        error = self._subscribed().requeue_one(ids[0], delay, now, reason)
        self._answered(ids)
        if error is not None:
            raise self._refused(error)
        self._log_reason(reason, 1)

    def touch(self, message_id: BytesLike, now: float) -> None:
        """IConsumer API."""
        error = self._subscribed().touch_one(self._id(b"TOUCH", message_id), now)
        if error is not None:
            raise self._refused(error)

    def finish_ranges(self, ranges: Sequence[Range], now: float) -> Failed | None:
        """IConsumer API."""
        messages = self._messages
        if messages is None:
            raise self._not_subscribed()
        inner = self.inner
        if not self._byte_credit.limit:
            in_order, ranges = inner.in_flight.split_in_order(ranges)
            if in_order:
                messages.channel.finish_next(inner, in_order, now)
            if not ranges:
                return None
        ids = self._ids("FIN", ranges)
        failed = messages.channel.finish(inner, ids, now)
        self._answered(ids)
        return self._failed("FIN", failed) if failed else None

    def requeue_ranges(self, ranges: Sequence[Range], delay: float, now: float, reason: str = "") -> Failed | None:
        """IConsumer API."""
        messages = self._subscribed()
        ids = self._ids("REQ", ranges)
        delay = min(max(delay, 0.0), self._broker.options.max_req_timeout)
        failed: list[tuple[bytes, str]] = []
        for message_id in ids:
            why = messages.channel.requeue(self.inner, message_id, delay, now, reason)
            if why is not None:
                failed.append((message_id, why))
        self._answered(ids)
        if len(failed) < len(ids):
            self._log_reason(reason, len(ids) - len(failed))
        return self._failed("REQ", failed) if failed else None

    def touch_ranges(self, ranges: Sequence[Range], now: float) -> Failed | None:
        """IConsumer API."""
        messages = self._subscribed()
        failed: list[tuple[bytes, str]] = []
        for message_id in self._ids("TOUCH", ranges):
            why = messages.channel.touch(self.inner, message_id, now)
            if why is not None:
                failed.append((message_id, why))
        return self._failed("TOUCH", failed) if failed else None

    def pause(self) -> None:
        """IConsumer API."""
        self._is_paused = True
        self._regulate()

    def resume(self) -> None:
        """IConsumer API."""
        if not self.is_closed:
            self._is_paused = False
            self._regulate()
            self._wake()

    def leave(self) -> None:
        """IConsumer API."""
        self._receiver = None
        inner = self.inner
        inner.is_blocked = True
        inner.on_pause = inner.on_removed = None  # they refer to this object, and it to them
        messages, self._messages = self._messages, None
        if messages is not None:
            messages.channel.leave(inner)
        else:
            inner.leave(must_wait=bool(inner.in_flight))
        self.is_closed = True

    # -- from the channel

    def _deliver(self, frames: bytes) -> None:
        if self._byte_credit.limit:
            self._byte_credit.add(frames)
            self._regulate()
        if self._receiver is not None:
            self._receiver.deliver(Batch(frames, None))

    def _deliver_with_headers(self, frames: bytes, headers: Sequence[bytes]) -> None:
        if self._byte_credit.limit:
            self._byte_credit.add(frames)
            self._regulate()
        if self._receiver is not None:
            self._receiver.deliver(Batch(frames, headers))

    def _end(self) -> None:
        """The channel is deleted."""
        receiver = self._receiver
        self.leave()
        if receiver is not None:
            receiver.ended(None)

    def _on_removed(self) -> None:
        """With a byte limit there may be room for others. The channel wakes up by itself."""
        if self._byte_credit.limit:
            self._regulate()

    def _on_pause(self, is_paused: bool) -> None:
        if self._receiver is not None:
            self._receiver.paused(is_paused)

    # -- inside

    def _regulate(self) -> None:
        """Deliver only if nothing speaks against it."""
        self.inner.is_blocked = self.is_closed or self._is_paused or self._byte_credit.is_used_up

    def _wake(self) -> None:
        if self._messages is not None:
            self._messages.channel.wake()

    def _answered(self, ids: Sequence[bytes]) -> None:
        """These are not in flight any more: with a byte limit there may be room for others."""
        if self._byte_credit.limit:
            self._byte_credit.forget(ids)
            self._regulate()
            self._wake()

    def _subscribed(self) -> BrokerSubscription:
        if self._messages is None:
            raise self._not_subscribed()
        return self._messages

    def _not_subscribed(self) -> ClientError:
        return self._refused(ClientError("E_INVALID", "not subscribed"))

    def _id(self, verb: bytes, message_id: BytesLike) -> bytes:
        try:
            return message_id_of(verb, (bytes(message_id),), 1)
        except ClientError as error:
            raise self._refused(error) from None

    def _ids(self, verb: str, ranges: Sequence[Range]) -> list[bytes]:
        """Return all ids of some ranges. ClientError when there are too many, or a number is none of an id."""
        total = max(len(ranges), sum([count for _, count in ranges]))
        if total > MAX_RANGE:
            raise self._refused(
                ClientError("E_INVALID", f"{verb} of {total} messages, at most {MAX_RANGE} are allowed")
            )
        ids: list[bytes] = []
        for first, count in ranges:
            if not 0 <= first < 1 << 63:
                raise self._refused(ClientError("E_INVALID", "invalid message ID"))
            ids += consecutive_ids(first, count)
        return ids

    def _failed(self, verb: str, failed: list[tuple[bytes, str]]) -> Failed:
        """Return the messages for which a command failed, and one error for all. There is one line in the log."""
        ranges: list[tuple[int, int]] = []
        for message_id, _ in failed:
            number = int(message_id, 16)
            if ranges and ranges[-1][0] + ranges[-1][1] == number:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
            else:
                ranges.append((number, 1))
        message_id, why = failed[0]
        others = f" and {len(failed) - 1} others" if len(failed) > 1 else ""
        text = f"{verb} {message_id.decode()}{others} failed {why}"
        return Failed(self._refused(ClientError(f"E_{verb}_FAILED", text, fatal=False)), ranges)

    def _log_reason(self, reason: str, count: int) -> None:
        if reason and self._messages is not None:
            channel = self._messages.channel
            self._broker.log(
                "info",
                "CHANNEL({channel}): [{client}] requeued {count} of {topic} - {reason}",
                channel=channel.name,
                topic=channel.topic.name,
                client=self._client.remote_address,
                count=count,
                reason=quoted(reason[:MAX_REASON].encode("utf-8", "replace")),
            )

    def _refused(self, error: ClientError) -> ClientError:
        self._log_refusal(error)
        return error


# Not by a decorator: with one, mypyc does not make a native class of it.
classImplements(ClientChannel, IChannel)
classImplements(ClientConsumer, IConsumer)

"""
One subscription of a V3 session: what the broker says about it becomes frames.

Performance: `deliver` is called once per span.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zope.interface import classImplements

from nsqtw.errors import ClientError
from nsqtw.interfaces import IConsumer, IReceiver
from nsqtw.protocols.v3 import codec
from nsqtw.protocols.v3.codec import SIZE_BEYOND_PAYLOAD, pack_u32

MAX_COPIED: Final = 4096
"""Bytes of messages that are copied behind their header: two pieces of output take longer to write."""


class Subscription:
    """
    The subscription with the id `number`. `write` sends a frame, `write_messages` a large DELIVER in two pieces; `over`
    is told that it has ended, with an error when the connection may do nothing any more.
    """

    def __init__(
        self,
        number: int,
        messages: int,
        byte_limit: int,
        write: Callable[[bytes], None],
        write_messages: Callable[[bytes, bytes], None],
        over: Callable[[Subscription, ClientError | None], None],
    ) -> None:
        self.number = number
        self.consumer: IConsumer | None = None
        self._deliver_mark = codec.deliver_mark(number)
        self._messages = messages
        self._byte_limit = byte_limit
        self._applied_byte_limit = 0
        """The limit that the consumer was told."""
        self._write = write
        self._write_messages = write_messages
        self._over = over
        self.is_open = False
        """Whether the broker has allowed it."""

    def begin(self, consumer: IConsumer) -> None:
        """`consumer` is what the broker returned."""
        self.consumer = consumer
        self._apply()

    def change_credit(self, messages: int, byte_limit: int, replaces: bool) -> None:
        """CREDIT. ClientError for bytes out of range."""
        if not replaces:
            messages += self._messages
            byte_limit += self._byte_limit
            if not byte_limit and self._byte_limit:
                byte_limit = -1  # 0 bytes more is no way to have no limit
        if byte_limit < 0:
            raise ClientError("E_INVALID", "CREDIT bytes out of range")
        self._messages, self._byte_limit = messages, byte_limit
        self._apply()

    # -- IReceiver

    def subscribed(self, error: ClientError | None) -> None:
        """IReceiver API."""
        if error is not None:
            self._write(codec.frame_of(codec.UNSUBSCRIBED, self.number, codec.error_payload(error)))
            self._over(self, None)
            return
        self.is_open = True
        self._write(codec.frame_of(codec.SUBSCRIBED, self.number))
        self._apply()

    def deliver(self, batch: Any) -> None:
        """IReceiver API."""
        frames: bytes = batch.frames
        size = len(frames)
        if batch.encoded_headers is None:
            head = pack_u32(SIZE_BEYOND_PAYLOAD + size) + self._deliver_mark
        else:
            head = codec.deliver_head(self.number, size, batch.encoded_headers)
        if size <= MAX_COPIED:
            self._write(head + frames)
        else:
            self._write_messages(head, frames)

    def paused(self, is_paused: bool) -> None:
        """IReceiver API."""
        self._write(codec.frame_of(codec.PAUSED if is_paused else codec.RESUMED, self.number))

    def ended(self, error: ClientError | None) -> None:
        """IReceiver API."""
        if error is None:
            deleted = ClientError("E_SUB_FAILED", "the channel was deleted")
            self._write(codec.frame_of(codec.UNSUBSCRIBED, self.number, codec.error_payload(deleted)))
        self._over(self, error)

    # -- inside

    def _apply(self) -> None:
        """Let the consumer have the limits, if there is one already."""
        if self.is_open and self.consumer is not None:
            try:
                if self._byte_limit != self._applied_byte_limit:
                    self._applied_byte_limit = self._byte_limit
                    self.consumer.limit_bytes(self._byte_limit)
                self.consumer.ready(self._messages)
            except ClientError as error:  # which the broker has logged
                self._over(self, error)


# Not by a decorator: with one, mypyc does not make a native class of it.
classImplements(Subscription, IReceiver)

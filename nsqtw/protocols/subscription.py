"""
A client's subscription to a channel: its credit, and its commands about messages, within the limits.

Performance: called once per command or run of commands.
"""

# mypyc: compiled

from __future__ import annotations

from typing import Final

from nsqtw.core.channel import Channel
from nsqtw.core.consumer import Consumer
from nsqtw.errors import ClientError
from nsqtw.options.broker import Options
from nsqtw.protocols.parameters import shown_id, text_of

MIN_MSG_TIMEOUT: Final = 1.0
"""Seconds."""


class BrokerSubscription:
    """The subscription of `consumer` to `channel`. `options` has the limits of its commands."""

    __slots__ = ("channel", "consumer", "options")

    def __init__(self, consumer: Consumer, channel: Channel, options: Options) -> None:
        self.consumer = consumer
        self.channel = channel
        self.options = options

    @property
    def is_paused(self) -> bool:
        """Whether an operator paused the channel or its topic."""
        return self.channel.paused or self.channel.topic.paused

    def set_ready(self, count: int) -> None:
        """RDY: allow up to `count` messages in flight. ClientError."""
        limit = self.options.max_rdy_count
        if not 0 <= count <= limit:
            raise ClientError("E_INVALID", f"RDY count {count} out of range 0-{limit}")
        self.channel.set_ready(self.consumer, count)

    def finish_all(self, ids: list[bytes], now: float) -> list[ClientError]:
        """Finish messages. Returns an error for each that could not be."""
        failed = self.channel.finish(self.consumer, ids, now)
        return [_failure("FIN", message_id, why) for message_id, why in failed] if failed else []

    def requeue_one(self, message_id: bytes, delay: float, now: float, reason: str = "") -> ClientError | None:
        """Have a message delivered again after `delay` seconds, or after the nearest that is allowed."""
        delay = min(max(delay, 0.0), self.options.max_req_timeout)
        why = self.channel.requeue(self.consumer, message_id, delay, now, reason)
        return None if why is None else _failure("REQ", message_id, why)

    def touch_one(self, message_id: bytes, now: float) -> ClientError | None:
        """TOUCH: restart the timeout of a message."""
        why = self.channel.touch(self.consumer, message_id, now)
        return None if why is None else _failure("TOUCH", message_id, why)


def is_msg_timeout(seconds: float, options: Options) -> bool:
    """Return whether a client may ask for a message timeout, whatever it asks with."""
    return MIN_MSG_TIMEOUT <= seconds <= options.max_msg_timeout


def _failure(command: str, message_id: bytes, why: str) -> ClientError:
    text = f"{command} {text_of(message_id)} failed {why}"
    logged = f"{command} {shown_id(message_id)} failed {why}"
    return ClientError(f"E_{command}_FAILED", text, fatal=False, logged=logged)

"""
What a client subscribes to, and what it says of its messages then: RDY, FIN, REQ and TOUCH, and that it wants no more.

This module is hot, once per command or run of FINs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.consumer import Consumer
from nsqtw.errors import BackendError, CapReached, ChannelFull, ClientError, Exiting
from nsqtw.options import Options
from nsqtw.protocols.gathering import Gathering
from nsqtw.protocols.parameters import (
    checked_name,
    decimal,
    duration_ns,
    message_id_of,
    need_names,
    shown_id,
    signed64,
    text_of,
    unparsed,
)
from nsqtw.protocols.v2_codec import FIN_IN_ORDER, fin_count


class Subscriber:
    """`consumer` of `channel`; `refuse` answers with an error, `log` writes a line about the client."""

    __slots__ = ("_is_closing", "_log", "_options", "_refuse", "channel", "consumer", "gathering")

    def __init__(
        self,
        consumer: Consumer,
        channel: Channel,
        options: Options,
        refuse: Callable[[ClientError], None],
        log: Callable[..., None],
    ) -> None:
        self.consumer = consumer
        self.channel = channel
        self._options = options
        self._refuse = refuse
        self._log = log
        self._is_closing = False
        self.gathering = Gathering()

    def close(self) -> None:
        """CLS: nothing is sent to it any more."""
        self.channel.set_ready(self.consumer, 0)
        self._is_closing = True

    def ready(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """RDY. ClientError."""
        if self._is_closing:
            self._log("info", "PROTOCOL(V2): [{client}] ignoring RDY after CLS in state ClientStateV2Closing")
            return
        count = 1
        if params:
            number = decimal(params[0])
            if number is None:
                raise unparsed("RDY could not parse count", params[0])
            count = signed64(number)
        limit = self._options.max_rdy_count
        if not 0 <= count <= limit:
            raise ClientError("E_INVALID", f"RDY count {count} out of range 0-{limit}")
        self.channel.set_ready(self.consumer, count)

    def finish(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """FIN, or a run of them. ClientError."""
        ids = payload or [message_id_of(verb, params, 1)]
        for message_id, why in self.channel.finish(self.consumer, ids, now):
            self._failed(verb, message_id, why)

    def finish_in_order(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """FIN, or a run of them, for what `consumer.in_flight` said would be finished next."""
        self.channel.finish_next(self.consumer, fin_count(payload[0]), now)

    def requeue(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """REQ. ClientError."""
        message_id = message_id_of(verb, params, 2)
        number = decimal(params[1])
        if number is None:
            raise unparsed("REQ could not parse timeout", params[1])
        asked_ns, longest_ns = duration_ns(number), round(self._options.max_req_timeout * 1e9)
        delay_ns = min(max(asked_ns, 0), longest_ns)
        if delay_ns != asked_ns:
            text = "PROTOCOL(V2): [{client}] REQ timeout {asked_ns} out of range 0-{longest_ns}. Setting to {delay_ns}"
            self._log("info", text, asked_ns=asked_ns, longest_ns=longest_ns, delay_ns=delay_ns)
        why = self.channel.requeue(self.consumer, message_id, delay_ns / 1e9, now)
        if why is not None:
            self._failed(verb, message_id, why)

    def touch(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """TOUCH. ClientError."""
        message_id = message_id_of(verb, params, 1)
        why = self.channel.touch(self.consumer, message_id, now)
        if why is not None:
            self._failed(verb, message_id, why)

    def _failed(self, verb: bytes, message_id: bytes, why: str) -> None:
        command = verb.decode()
        text = f"{command} {text_of(message_id)} failed {why}"
        logged = f"{command} {shown_id(message_id)} failed {why}"
        self._refuse(ClientError(f"E_{command}_FAILED", text, fatal=False, logged=logged))


def subscribed_names(params: Sequence[bytes]) -> tuple[str, str]:
    """Of which topic and channel SUB speaks. ClientError."""
    need_names(b"SUB", params, 2)
    topic = checked_name(params[0], "E_BAD_TOPIC", "SUB topic name")
    return topic, checked_name(params[1], "E_BAD_CHANNEL", "SUB channel name")


def join(broker: Broker, topic: str, channel: str, consumer: Consumer, now: float) -> Channel:
    """The channel, which may be new, with one more consumer. ClientError."""
    try:
        joined = broker.topic(topic).channel(channel, now)
        joined.subscribe(consumer)
    except ChannelFull:
        limit = broker.options.max_channel_consumers
        text = f"SUB failed consumers for {topic}:{channel} exceeds limit of {limit}"
        raise ClientError("E_SUB_FAILED", text) from None
    except (Exiting, BackendError, CapReached) as error:
        raise ClientError("E_SUB_FAILED", f"SUB failed {error}") from None
    return joined


ABOUT_MESSAGES: dict[bytes, Callable[[Subscriber, bytes, Sequence[bytes], list[bytes], float], None]] = {
    b"RDY": Subscriber.ready,
    b"FIN": Subscriber.finish,
    FIN_IN_ORDER: Subscriber.finish_in_order,
    b"REQ": Subscriber.requeue,
    b"TOUCH": Subscriber.touch,
}

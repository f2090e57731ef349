"""
Subscription of a V2 session, and its commands about messages: RDY, FIN, REQ, TOUCH and CLS.

Performance: called once per command or run of FINs.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsqtw.core.channel import Channel
from nsqtw.core.consumer import Consumer
from nsqtw.errors import ClientError
from nsqtw.options.broker import Options
from nsqtw.protocols.fin_coalescing import FinCoalescing
from nsqtw.protocols.parameters import (
    checked_name,
    decimal,
    duration_ns,
    message_id_of,
    need_names,
    signed64,
    unparsed,
)
from nsqtw.protocols.subscription import BrokerSubscription


class Subscriber(BrokerSubscription):
    """`consumer` of `channel`; `refuse` answers with an error, `log` writes a line about the client."""

    __slots__ = ("_is_closing", "_log", "_refuse", "fin_coalescing")

    def __init__(
        self,
        consumer: Consumer,
        channel: Channel,
        options: Options,
        refuse: Callable[[ClientError], None],
        log: Callable[..., None],
    ) -> None:
        super().__init__(consumer, channel, options)
        self._refuse = refuse
        self._log = log
        self._is_closing = False
        self.fin_coalescing = FinCoalescing()

    def close(self) -> None:
        """CLS: nothing is sent to it any more."""
        self.channel.set_ready(self.consumer, 0)
        self._is_closing = True

    def ready(self, params: Sequence[bytes]) -> None:
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
        self.set_ready(count)

    def finish(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """FIN, or a run of them. ClientError."""
        ids = payload or [message_id_of(verb, params, 1)]
        for error in self.finish_all(ids, now):
            self._refuse(error)

    def finish_in_order(self, count: int, now: float) -> None:
        """FIN for the `count` messages that `consumer.in_flight` said would be finished next."""
        self.channel.finish_next(self.consumer, count, now)

    def requeue(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """REQ. ClientError."""
        message_id = message_id_of(verb, params, 2)
        number = decimal(params[1])
        if number is None:
            raise unparsed("REQ could not parse timeout", params[1])
        asked_ns, longest_ns = duration_ns(number), round(self.options.max_req_timeout * 1e9)
        delay_ns = min(max(asked_ns, 0), longest_ns)
        if delay_ns != asked_ns:
            text = "PROTOCOL(V2): [{client}] REQ timeout {asked_ns} out of range 0-{longest_ns}. Setting to {delay_ns}"
            self._log("info", text, asked_ns=asked_ns, longest_ns=longest_ns, delay_ns=delay_ns)
        error = self.requeue_one(message_id, delay_ns / 1e9, now)
        if error is not None:
            self._refuse(error)

    def touch(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
        """TOUCH. ClientError."""
        message_id = message_id_of(verb, params, 1)
        error = self.touch_one(message_id, now)
        if error is not None:
            self._refuse(error)


def check_subscription(params: Sequence[bytes]) -> None:
    """Check the topic and channel of a SUB. ClientError."""
    need_names(b"SUB", params, 2)
    checked_name(params[0], "E_BAD_TOPIC", "SUB topic name")
    checked_name(params[1], "E_BAD_CHANNEL", "SUB channel name")

"""
A single read of a channel: until `maxMessages`, until no more messages come, or until a time limit.

With ackMode "fin" each message is finished on receipt; otherwise RDY would end the sample. With "peek" all messages are
requeued at the end, so there are at most as many as RDY allows.
"""

from __future__ import annotations

import time

from twisted.internet.threads import blockingCallFromThread

from pyspark_nsq.channel.consumer import ChannelConsumer
from pyspark_nsq.channel.silence import wait_for_silence
from pyspark_nsq.channel.span import Span
from pyspark_nsq.channel.v2_connection import V2Connection
from pyspark_nsq.http.reactor_thread import running_reactor
from pyspark_nsq.options.channel import ChannelOptions


def take(options: ChannelOptions) -> list[Span]:
    """
    Return the messages, after finishing them, or with the `ackMode` peek after requeuing them. Raises ReadError when an
    nsqd refuses, or when none can be reached.
    """
    sample = _Sample(options)
    reactor = running_reactor()
    consumer = ChannelConsumer(reactor, options, sample.received)
    blockingCallFromThread(reactor, consumer.allow, sample.most_unfinished)
    blockingCallFromThread(reactor, consumer.start)
    try:
        wait_for_silence(options, consumer, lambda: sample.received_at, lambda: sample.full)
    finally:
        blockingCallFromThread(reactor, consumer.stop)
    return sample.spans


class _Sample:
    """The received messages. For the reactor's thread."""

    def __init__(self, options: ChannelOptions) -> None:
        self.spans: list[Span] = []
        self.received_at = time.monotonic()
        self.most_unfinished = min(options.max_in_flight, options.max_messages)
        self._peek = options.ack_mode == "peek"
        self._left = self.most_unfinished if self._peek else options.max_messages

    @property
    def full(self) -> bool:
        return self._left == 0

    def received(self, connection: V2Connection, spans: list[Span]) -> None:
        self.received_at = time.monotonic()
        for span in spans:
            if span.count > self._left:
                # The messages beyond the limit stay unfinished, and are requeued.
                span, _ = connection.split(span, self._left)
            if span.count:
                self._left -= span.count
                self.spans.append(span)
                if not self._peek:
                    connection.finish(span)

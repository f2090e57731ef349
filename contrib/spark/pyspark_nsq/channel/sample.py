"""
Consumes a channel once: up to a number of messages, until nothing comes any more, or for so long at most.

With ackMode "fin" a message is finished as it comes, else RDY would end the sample. With "peek" all are given back in
the end, so that there cannot be more of them than RDY allows.
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
    The messages, finished, or given back when `ackMode` is peek. Raises ReadError when an nsqd refuses, or none can be
    reached.
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
    """What came, in the reactor's thread."""

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
                # What is too much stays unfinished, and is given back.
                span, _ = connection.split(span, self._left)
            if span.count:
                self._left -= span.count
                self.spans.append(span)
                if not self._peek:
                    connection.finish(span)

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
from pyspark_nsq.channel.spool import Row
from pyspark_nsq.channel.v2_connection import V2Connection
from pyspark_nsq.channel.v2_message import Message
from pyspark_nsq.http.reactor_thread import running_reactor
from pyspark_nsq.options.channel import ChannelOptions


def take(options: ChannelOptions) -> list[Row]:
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
    return sample.rows


class _Sample:
    """What came, in the reactor's thread."""

    def __init__(self, options: ChannelOptions) -> None:
        self.rows: list[Row] = []
        self.received_at = time.monotonic()
        self.most_unfinished = min(options.max_in_flight, options.max_messages)
        self._peek = options.ack_mode == "peek"
        self._most = self.most_unfinished if self._peek else options.max_messages

    @property
    def full(self) -> bool:
        return len(self.rows) >= self._most

    def received(self, connection: V2Connection, messages: list[Message]) -> None:
        self.received_at = time.monotonic()
        # What is too much stays unfinished, and is given back.
        mine = messages[: self._most - len(self.rows)]
        self.rows += [Row(0, connection.nsqd, one.id, one.timestamp_ns, one.attempts, one.body) for one in mine]
        if not self._peek:
            connection.finish([one.id for one in mine])

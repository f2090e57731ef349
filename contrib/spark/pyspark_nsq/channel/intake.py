"""
The way from NSQ into the spool, in three threads: the consumer in the reactor's thread, a thread that appends, and the
query's thread.

The connections' messages are collected; the appending thread takes all of them at a time, so one sync stores all
messages that came during the sync before. The messages are finished after it. RDY follows the free space in the spool.
The query's thread reads at the same time, and no other thread waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from twisted.internet.threads import blockingCallFromThread

from pyspark_nsq.channel.consumer import ChannelConsumer
from pyspark_nsq.channel.silence import wait_for_silence
from pyspark_nsq.channel.span import Span
from pyspark_nsq.channel.spool import Spool
from pyspark_nsq.channel.spool_lock import SpoolLock
from pyspark_nsq.channel.v2_connection import V2Connection
from pyspark_nsq.errors import NsqSparkError, ReadError
from pyspark_nsq.frames import BODY_AT
from pyspark_nsq.http.reactor_thread import running_reactor
from pyspark_nsq.options.channel import ChannelOptions

_WRITER_SECONDS = 60.0


class Intake:
    """
    Opens the spool, and consumes the channel. Methods are for the query's thread.

    Raises SpoolError when the spool is another query's, or cannot be used.
    """

    def __init__(self, options: ChannelOptions, path: str) -> None:
        self._options = options
        self._lock = SpoolLock(path)
        try:
            self._spool = Spool.open(path, skips_damage=not options.fail_on_data_loss)
        except BaseException:
            self._lock.release()
            raise
        self.opened_end = self._spool.end
        """The number of the last row when the spool was opened. An earlier query has seen none above it."""
        self.repeated = 0
        """How many messages came again, and were dropped, so far."""
        self._failure: NsqSparkError | None = None
        self._pending: list[tuple[V2Connection, list[Span]]] = []
        self._news = threading.Condition()
        self._stopping = False
        self._received_at = time.monotonic()
        self._reactor = running_reactor()
        self._consumer = ChannelConsumer(self._reactor, options, self._received)
        self._writer = threading.Thread(target=self._write, name="pyspark-nsq-spool", daemon=True)
        self._writer.start()
        self._in_reactor(self._start)

    @property
    def uuid(self) -> str:
        return self._spool.uuid

    def first(self) -> int:
        """Return the number of the first row in the spool, or of the next row if it is empty."""
        return self._spool.first()

    def end(self) -> int:
        """Return the number of the last row. Raises the error that has stopped the intake: SpoolError, ReadError."""
        self._must_work()
        return self._spool.end

    def spans(self, after: int, end: int) -> list[Span]:
        """Return the messages after number `after` up to number `end`."""
        return list(self._spool.spans(after, end))

    def fit(self, after: int, end: int, most_bytes: int) -> int:
        return self._spool.fit(after, end, most_bytes)

    def body_bytes(self, after: int, end: int) -> int:
        """Return the bytes of the values."""
        rows, frame_bytes = self._spool.measure(after, end)
        return frame_bytes - BODY_AT * rows

    def mark_processed(self, end: int) -> None:
        """Spark has processed the rows up to and with `end`: as many others may come."""
        if self._spool.mark_processed(end):
            self._in_reactor(self._share_room)

    def skip_to(self, end: int) -> None:
        """Give the next message a number above `end`."""
        self._spool.skip_to(end)
        self.opened_end = max(self.opened_end, end)

    def forget(self, end: int) -> None:
        """Forget the rows up to number `end`: Spark does not need them any more."""
        self._spool.forget(end, int(time.time()) - self._options.id_window_seconds)
        self._in_reactor(self._share_room)

    def drain(self) -> None:
        """
        Take the messages of the channel until none comes for `idleTimeoutMs`, the spool is full, or `maxWaitMs` is
        over, and stop. Raises ReadError when no nsqd could be reached.
        """
        wait_for_silence(
            self._options, self._consumer, lambda: self._received_at, lambda: self._room() <= 0 or bool(self._failure)
        )
        self._must_work()
        self.stop()

    def stop(self) -> None:
        """Append and finish the received messages, requeue the others, and disconnect. The spool stays readable."""
        if self._stopping:
            return
        self._in_reactor(self._consumer.allow, 0)
        with self._news:
            self._stopping = True
            self._news.notify()
        self._writer.join(_WRITER_SECONDS)
        self._in_reactor(self._consumer.stop)

    def close(self) -> None:
        """Stop, and release the spool for another query."""
        self.stop()
        self._spool.close()
        self._lock.release()

    def _in_reactor(self, work: Callable[..., Any], *arguments: object) -> Any:
        return blockingCallFromThread(self._reactor, work, *arguments)

    def _must_work(self) -> None:
        failure = self._failure or self._consumer.failure
        if failure is not None:
            raise failure

    def _start(self) -> None:
        self._share_room()
        self._consumer.start()

    def _room(self) -> int:
        """Return the number of messages that fit into the spool."""
        if self._spool.frame_bytes >= self._options.max_spool_bytes:
            return 0
        return self._options.max_spool_rows - (self._spool.end - self._spool.processed)

    def _share_room(self) -> None:
        if not self._stopping:
            self._consumer.allow(max(0, min(self._options.max_in_flight, self._room())))

    def _received(self, connection: V2Connection, spans: list[Span]) -> None:
        self._received_at = time.monotonic()
        with self._news:
            self._pending.append((connection, spans))
            self._news.notify()

    def _write(self) -> None:
        while True:
            with self._news:
                while not self._pending and not self._stopping:
                    self._news.wait()
                deliveries, self._pending = self._pending, []
            if not deliveries:
                return
            try:
                spans = [span for _, some in deliveries for span in some]
                fresh = self._spool.append(spans, int(time.time()))
                self.repeated += sum(span.count for span in spans) - fresh
                self._reactor.callFromThread(self._finish, deliveries)
            except Exception as error:
                self._fail(error, "appending to the spool")
                return

    def _finish(self, deliveries: list[tuple[V2Connection, list[Span]]]) -> None:
        try:
            for connection, spans in deliveries:
                for span in spans:
                    connection.finish(span)
            self._share_room()
        except Exception as error:
            self._fail(error, "finishing messages")

    def _fail(self, error: Exception, action: str) -> None:
        """Keep the error for the query's thread, which raises it instead of waiting for rows without end."""
        if isinstance(error, NsqSparkError):
            self._failure = error
            return
        self._failure = ReadError(f"{action} failed: {type(error).__name__}: {error}")
        self._failure.__cause__ = error

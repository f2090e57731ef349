"""
Pushes statistics to a statsd over UDP, every statsd-interval.

Theory of operation. One coroutine lives as long as the broker serves:

    wait until a push is due ─▶ look the address up ─▶ build the packets in slices ─▶ send them spread out ─▶ wait ...

A broker may have ten thousand channels, and the reactor has other things to do. So the packets are built in slices of
a few milliseconds, with a pause after each, and sent evenly over the interval less one second. When the broker stops
every pause is over at once, and what there is of a push is built and sent without delay.

A push that cannot be is said in the log and not made up for: the counters of the next one cover it, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import DNSLookupError, MessageLengthError
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import deferLater
from twisted.logger import Logger

from nsqtw.core.broker import Broker
from nsqtw.names import is_ephemeral
from nsqtw.options.addresses import split_host_port
from nsqtw.runtime.process_memory import memory
from nsqtw.runtime.reactor import Reactor
from nsqtw.runtime.resolver import resolve
from nsqtw.stats.document import walk
from nsqtw.stats.statsd_lines import Lines, Packets

LOOKUP_SECONDS = 1.0
UNSPREAD_SECONDS = 1.0
"""The packets of a push are spread over the interval less this."""
SLICE_SECONDS = 0.002
PAUSE_SECONDS = 0.008
SHORTEST_WAIT_SECONDS = 0.01
"""With shorter intervals several packets are sent together."""

_log = Logger()


class Statsd:
    """Pushes the statistics of `broker`. `now` is its clock."""

    def __init__(self, reactor: Reactor, broker: Broker, now: Callable[[], float]) -> None:
        options = broker.options
        self._reactor = reactor
        self._broker = broker
        self._now = now
        self._address: str = options.statsd_address
        self._interval: float = options.statsd_interval
        self._lines = Lines(options.statsd_prefix)
        self._waiting: Deferred[Any] | None = None
        self._stopping = False
        self._running: Deferred[None]

    def start(self) -> None:
        """The first push is due after one interval."""
        self._running = Deferred.fromCoroutine(self._run())

    async def stop(self) -> None:
        """End it; a push that has begun is sent to its end, at once."""
        self._stopping = True
        if self._waiting is not None:
            self._waiting.cancel()
        await self._running
        _log.info("STATSD: closing")

    async def _run(self) -> None:
        clock = self._reactor.seconds
        due = clock() + self._interval
        while True:
            await self._pause(due - clock())
            if self._stopping:
                return
            try:
                await self._push(due + self._interval - UNSPREAD_SECONDS)
            except Exception:  # the next push comes
                _log.failure("STATSD: a push failed")
            while due <= clock():
                due += self._interval

    async def _push(self, until: float) -> None:
        """Push once; the packets are sent until the time `until`."""
        try:
            port = await self._connected()
        except (OSError, ValueError, OverflowError, DNSLookupError, CancelledError):
            if not self._stopping:
                _log.error("failed to create UDP socket to statsd({address})", address=self._address)
            return
        _log.info("STATSD: pushing stats to {address}", address=self._address)
        try:
            packets = await self._built()
            await self._send(port, packets, until)
        finally:
            await port.stopListening()

    async def _connected(self) -> Any:
        """
        A UDP port connected to the statsd. ValueError, OSError, DNSLookupError, OverflowError for a port number that
        is none; CancelledError after a while.
        """
        parts = split_host_port(self._address)
        if parts is None:
            raise ValueError(f"{self._address} is no host:port")
        lookup = resolve(self._reactor, parts[0] or "localhost").addTimeout(
            LOOKUP_SECONDS, self._reactor, lambda result, seconds: result
        )
        address = await self._wait(lookup)
        port = self._reactor.listenUDP(0, DatagramProtocol(), interface="::" if ":" in address else "")
        try:
            port.connect(address, int(parts[1]))
            # Nobody answers, but a host without a statsd refuses, and the reactor would close the port for that.
            port.stopReading()
        except Exception:
            await port.stopListening()
            raise
        return port

    async def _built(self) -> list[bytes]:
        packets = Packets(self._broker.options.statsd_udp_packet_size)
        steps = self._steps(packets)
        while not _advance(steps):
            await self._pause(PAUSE_SECONDS)
        return packets.take()

    def _steps(self, packets: Packets) -> Iterator[None]:
        """Builds the packets, a channel a step."""
        options = self._broker.options
        for numbers in walk(self._broker, self._now()):
            if numbers is not None and not (
                options.statsd_exclude_ephemeral and _is_ephemeral(numbers.topic, numbers.channel)
            ):
                packets.add(self._lines.of(numbers))
            yield
        if options.statsd_mem_stats:
            packets.add(self._lines.memory(memory()))
        self._lines.end_push()

    async def _send(self, port: Any, packets: list[bytes], until: float) -> None:
        clock = self._reactor.seconds
        started, count = clock(), len(packets)
        spread = max(until - started, SHORTEST_WAIT_SECONDS)
        at_a_time = max(1, ceil(count * SHORTEST_WAIT_SECONDS / spread))
        for sent in range(0, count, at_a_time):
            for packet in packets[sent : sent + at_a_time]:
                _write(port, packet)
            await self._pause(started + spread * min(1.0, (sent + at_a_time) / count) - clock())

    async def _pause(self, seconds: float) -> None:
        """Returns after that time, and at once when the broker stops."""
        if not self._stopping:
            try:
                await self._wait(deferLater(self._reactor, max(0.0, seconds)))
            except CancelledError:
                return

    async def _wait(self, awaited: Deferred[Any]) -> Any:
        """Wait for a Deferred. CancelledError when the broker stops first."""
        self._waiting = awaited
        try:
            return await awaited
        finally:
            self._waiting = None


def _advance(steps: Iterator[None]) -> bool:
    """Go on for the time of a slice; whether that was the end."""
    end = time.monotonic() + SLICE_SECONDS
    for _ in steps:  # noqa: SIM110  # the steps are work, no values
        if time.monotonic() > end:
            return False
    return True


def _write(port: Any, packet: bytes) -> None:
    """Send a packet. A failure is ignored: statsd's users expect lost packets."""
    try:
        port.write(packet)
    except (OSError, MessageLengthError):
        return


def _is_ephemeral(topic: str, channel: str | None) -> bool:
    return is_ephemeral(topic) or (channel is not None and is_ephemeral(channel))

"""Limits on the clients of a daemon, shared by all its ports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nsqtw.net.admission import ConnectionLimiter, ConnectionLimiterOptions, Rejections
from nsqtw.net.deadlines import DeadlineOptions, DeadlineSweeper
from nsqtw.net.descriptors import Descriptors
from nsqtw.net.partial_input import PartialInput
from nsqtw.runtime.long_work import LongWork
from nsqtw.runtime.reactor import Reactor


class LimitOptions(ConnectionLimiterOptions, DeadlineOptions, Protocol):
    """The options of a daemon that limit its clients."""

    max_unfinished_size: int
    min_body_rate: int


class Limits:
    """
    The limits of one server on its connections.

    `connection_limiter` bounds the number of connections, `sweeper` the time they may take, `partial_input` the memory
    of unfinished input, `long_work` the part of a turn for work that does not fit into one. `rejections` logs the
    addresses that were over a limit. `now` is the clock of all of them, in seconds. Descriptors are counted where
    `descriptors` are given.
    """

    def __init__(
        self, options: LimitOptions, reactor: Reactor, now: Callable[[], float], descriptors: Descriptors | None = None
    ) -> None:
        self.descriptors = descriptors
        self.options = options
        self.rejections = Rejections(now)
        self.connection_limiter = ConnectionLimiter(options, self.rejections, descriptors)
        self.long_work = LongWork(reactor, now)
        self.sweeper = DeadlineSweeper(reactor, options, now)
        self.partial_input = PartialInput(options.max_unfinished_size)

    def follow_options(self) -> None:
        """Options have new values that are not looked at each time they are used."""
        self.partial_input.limit = self.options.max_unfinished_size
        self.sweeper.follow_options()

    def close(self) -> None:
        """The daemon ends."""
        if self.descriptors is not None:
            self.descriptors.close()

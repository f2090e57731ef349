"""Limits on the clients of a daemon, shared by all its ports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from nsqtw.net.admission import ConnectionLimiter, ConnectionLimiterOptions, Rejections
from nsqtw.net.deadlines import DeadlineOptions, DeadlineSweeper
from nsqtw.net.descriptors import Descriptors
from nsqtw.net.partial_input import PartialInput
from nsqtw.runtime.slices import Slices


class LimitOptions(ConnectionLimiterOptions, DeadlineOptions, Protocol):
    """What the options of a daemon say about it."""

    max_unfinished_size: int
    min_body_rate: int


class Limits:
    """
    Connections that may come in (`connection_limiter`), how long they may take (`sweeper`), what they may keep
    (`partial_input`), their part of each turn for work that does not fit into one (`slices`), and who was over a limit
    (`rejections`). `now` is the clock of it all. Descriptors are counted where `descriptors` are given.
    """

    def __init__(
        self, options: LimitOptions, reactor: Any, now: Callable[[], float], descriptors: Descriptors | None = None
    ) -> None:
        self.descriptors = descriptors
        self.options = options
        self.rejections = Rejections(now)
        self.connection_limiter = ConnectionLimiter(options, self.rejections, descriptors)
        self.slices = Slices(reactor, now)
        self.sweeper = DeadlineSweeper(reactor, options, now)
        self.partial_input = PartialInput(options.max_unfinished_size)

    def close(self) -> None:
        """The daemon ends."""
        if self.descriptors is not None:
            self.descriptors.close()

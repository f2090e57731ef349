"""
Time limits of an HTTP client, for the parts of a request and for reading its answers.

    HEAD       http-header-timeout    from the connection, or the first byte behind the last request, to the end of head
    BODY       body-timeout           longer while min-body-rate is held
    DROPPED    body-timeout           the rest of a body whose request is answered
    IDLE       http-idle-timeout      between two requests
    ANSWER     none                   the broker works
    (reading)  write-timeout          in which the client took nothing of what waits for it

Theory of operation. Requests record no times. Every round of the sweeper compares the stage of the connection with that
of the round before; if it is the same, the client had the time in between for it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from nsqtw.http.responses import TIMED_OUT, Answer
from nsqtw.net.limits import Limits
from nsqtw.net.stalls import StallDetector
from nsqtw.protocols.body_rate import BodyRate
from nsqtw.runtime.transport import Transport


class Stage(Enum):
    """The part of a request that a connection waits for."""

    HEAD = auto()
    BODY = auto()
    DROPPED = auto()
    IDLE = auto()
    ANSWER = auto()


class TimedConnection(Protocol):
    """A connection with time limits."""

    @property
    def transport(self) -> Transport: ...

    @property
    def stage(self) -> tuple[Stage, int]:
        """The part of a request that it waits for, and the number of the request."""

    @property
    def received_bytes(self) -> int: ...

    @property
    def remote(self) -> str: ...

    def abort(self) -> None: ...

    def leave(self) -> None: ...

    def refuse(self, answer: Answer, /) -> None: ...


class RequestTimeouts:
    """The time limits of one connection, from `now` on."""

    def __init__(self, connection: TimedConnection, limits: Limits, now: float) -> None:
        self._connection = connection
        self._limits = limits
        self._stall_detector = StallDetector()
        self._body_rate = BodyRate(limits.options.min_body_rate)
        self._stage = (Stage.HEAD, 0)
        self._since = now

    def check(self, now: float) -> None:
        """End the connection if something takes too long."""
        connection, options = self._connection, self._limits.options
        if options.write_timeout and self._stall_detector.lasts(connection.transport, now) >= options.write_timeout:
            self._record("write-timeout")
            connection.abort()
            return
        stage = connection.stage
        if stage != self._stage:
            self._stage, self._since = stage, now
        elapsed = now - self._since
        if stage[0] is Stage.HEAD and 0 < options.http_header_timeout <= elapsed:
            self._end("http-header-timeout")
        elif stage[0] is Stage.IDLE and 0 < options.http_idle_timeout <= elapsed:
            connection.leave()
        elif stage[0] in (Stage.BODY, Stage.DROPPED) and 0 < options.body_timeout <= elapsed:
            self._look_at_body(stage[0], now)

    def _look_at_body(self, stage: Stage, now: float) -> None:
        timeout = self._limits.options.body_timeout
        received = self._connection.received_bytes
        if now >= self._body_rate.until and (
            stage is Stage.DROPPED or not self._body_rate.goes_on(self._since, received, now, timeout)
        ):
            self._end("body-timeout")

    def _end(self, limit: str) -> None:
        self._record(limit)
        self._connection.refuse(TIMED_OUT)

    def _record(self, limit: str) -> None:
        self._limits.rejections.record(limit, self._connection.remote)

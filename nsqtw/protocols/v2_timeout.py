"""
Time limit of a session for the next command, or for the rest of an incomplete one.

With heartbeats it is nsqd's: two intervals, except that a body that goes on arriving is waited for. Without heartbeats
a client may be silent for any time, but not in the middle of a command.
"""

# mypyc: compiled

from __future__ import annotations

from math import inf

from nsqtw.options.broker import Options
from nsqtw.protocols.body_rate import BodyRate
from nsqtw.protocols.identify import Settings
from nsqtw.protocols.v2_codec import V2Codec


class CommandTimeout:
    """The command that `codec` may be in the middle of, of a client with `settings`."""

    def __init__(self, codec: V2Codec, settings: Settings, options: Options) -> None:
        self._codec = codec
        self._settings = settings
        self._options = options
        self._body_rate = BodyRate(options.min_body_rate)

    def deadline(self, last_command: float) -> float:
        """Return when a client that has completed no command since `last_command` has been silent for too long."""
        timeout = self._timeout
        return max(last_command + timeout, self._body_rate.until) if timeout else inf

    def still_comes(self, last_command: float, now: float) -> bool:
        """Return whether there is half a command, and the rest is on its way."""
        received = self._codec.pending_bytes
        return received > 0 and self._body_rate.goes_on(last_command, received, now, self._timeout)

    @property
    def _timeout(self) -> float:
        """The time limit of a command in seconds; 0 for none."""
        interval = self._settings.heartbeat_interval
        if interval:
            return 2 * interval
        return self._options.body_timeout if self._codec.is_inside else 0.0

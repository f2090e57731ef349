"""Problems of a consumer that runs: a line on stderr for what it tries again, an end for what does not change."""

from __future__ import annotations

from collections.abc import Callable

from nsqtw.cli.failures import explained, readable
from nsqtw.cli.session import Session
from nsqtw.errors import ClientLibraryError, LookupFailed, NotConnected, NsqtwError, PermissionRefused, Refused

_NO_TOPIC = "TOPIC_NOT_FOUND"
"""An nsqlookupd's answer about a topic that no nsqd has yet."""


class Problems:
    """
    The problems that a consumer reports. Nothing is written before `show`, because the start of a consumer raises the
    problems that prevent it. `stop` stops the consumer when a node refuses the credentials.
    """

    def __init__(self, session: Session, stop: Callable[[], object]) -> None:
        self._session = session
        self._stop = stop
        self._early: list[str] | None = []
        self._last: dict[str, str] = {}
        """The last line about each server. It is not repeated with each attempt."""
        self.refusal: PermissionRefused | None = None
        """The refusal that ends the command."""

    def add(self, server: str, error: ClientLibraryError) -> None:
        """Show a problem that a consumer passes to its parameter on_problem."""
        shown = explained(error)
        if isinstance(shown, PermissionRefused):
            self.refusal = self.refusal or PermissionRefused(f"{server}: {shown}")
            self._session.reactor.callLater(0, self._stop)
            return
        line = _line(server, error, shown)
        if not line or self._last.get(server) == line:
            return
        self._last[server] = line
        if self._early is not None:
            self._early.append(line)
        else:
            self._session.warn(line)

    def show(self) -> None:
        """Write the problems so far, and from now on each one when it comes."""
        lines, self._early = self._early or [], None
        for line in lines:
            self._session.warn(line)


def _line(server: str, error: ClientLibraryError, shown: NsqtwError) -> str:
    """Return the line about a problem that does not end the command; empty for none."""
    if isinstance(error, LookupFailed):
        if _NO_TOPIC in str(error):
            return ""
        text, host = readable(str(error)), server.partition("://")[2].partition("/")[0]
        return f"{text if text.startswith(host) else f'{host}: {text}'}; trying again"
    if isinstance(error, NotConnected):
        return f"{server}: connection lost; trying again"
    if isinstance(error, Refused):
        return f"{server}: {shown}"
    text = readable(str(error))
    return f"{text if text.startswith(server) else f'{server}: {text}'}; trying again"

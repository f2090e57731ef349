"""
Upgrades after an IDENTIFY that negotiates TLS or compression, each answered with OK once it is done.

    JSON, TLS, OK, snappy or deflate, OK

What a client sends before it has read the OK is dropped, as by nsqd: nothing that was sent in plain text is ever taken
for something that came through TLS.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable

from nsqtw.core.client import Client
from nsqtw.errors import ClientError
from nsqtw.interfaces import OperatorLog
from nsqtw.protocols.client import note_tls
from nsqtw.protocols.frames import OK
from nsqtw.protocols.identify import Features
from nsqtw.protocols.replies import Replies
from nsqtw.upgrades import Compress, Compression, Secured, StartTls


class Upgrades:
    """
    The upgrades of one session. `secured` is called after the TLS handshake; `refuse` makes an error frame and ends it.
    """

    def __init__(
        self,
        client: Client,
        replies: Replies,
        log: OperatorLog,
        secured: Callable[[], None],
        refuse: Callable[[ClientError], bytes],
    ) -> None:
        self._client = client
        self._replies = replies
        self._log = log
        self._told = secured
        self._refuse = refuse
        self._features = Features()
        self.is_pending = False
        """Whether an upgrade is not completed yet."""

    def begin(self, features: Features) -> None:
        """Ask for all that was negotiated."""
        self._features = features
        if features.tls:
            self.is_pending = True
            self._say("TLS")
            self._replies.add_upgrade(StartTls(self._secured, self._failed))
        else:
            self._compress()

    def close(self) -> None:
        """The session has ended, and is told nothing any more."""
        self._told, self._refuse = _do_nothing, _say_nothing

    def taken(self) -> None:
        """The connection was told everything up to the next upgrade. Compressing needs no answer."""
        if self._client.snappy or self._client.deflate:
            self.is_pending = False

    def _secured(self, secured: Secured) -> None:
        note_tls(self._client, secured)
        self.is_pending = False
        self._told()
        self._replies.add(OK)
        self._compress()

    def _failed(self, reason: str) -> bytes:
        return self._refuse(ClientError("E_IDENTIFY_FAILED", f"IDENTIFY failed {reason}"))

    def _compress(self) -> None:
        features, compression = self._features, None
        if features.snappy:
            self._say("snappy")
            self._client.snappy = True
            compression = _snappy()
        elif features.deflate:
            self._say(f"deflate (level {features.deflate_level})")
            self._client.deflate = True
            compression = _deflate(features.deflate_level)
        if compression is not None:
            self.is_pending = True
            self._replies.add_upgrade(Compress(compression))
            self._replies.add(OK)

    def _say(self, what: str) -> None:
        text = "PROTOCOL(V2): [{client}] upgrading connection to {upgrade}"
        self._log("info", text, client=self._client.remote_address, upgrade=what)


def _do_nothing() -> None:
    """Ignore the end of a handshake: the session has ended."""


def _say_nothing(error: ClientError) -> bytes:
    """Return no error frame: the session has ended."""
    return b""


# Imported lazily: only needed with compression.


def _snappy() -> Compression:
    from nsqtw.protocols.compression import Snappy

    return Snappy()


def _deflate(level: int) -> Compression:
    from nsqtw.protocols.compression import Deflate

    return Deflate(level)

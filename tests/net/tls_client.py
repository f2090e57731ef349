"""
The client's side of TLS, in memory: Python's own, which has nothing of ours in it.

    client = TlsClient(protocol, transport)
    client.shake()                  the handshake
    client.send(b"...")             what the protocol then reads
    client.read()                   what was written to it
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any

from tests.certificates import Pair


def context(
    *,
    certificate: Pair | None = None,
    authority: str = "",
    lowest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ciphers: str = "",
) -> ssl.SSLContext:
    """What a client wants. With an authority it verifies the server."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = bool(authority)
    made.verify_mode = ssl.CERT_REQUIRED if authority else ssl.CERT_NONE
    if authority:
        made.load_verify_locations(authority)
    if certificate is not None:
        made.load_cert_chain(*certificate)
    if ciphers:
        made.set_ciphers(ciphers)
    made.minimum_version, made.maximum_version = lowest, highest
    return made


class TlsClient:
    """A client of what listens on `transport`, a StringTransport whose protocol is the server's."""

    def __init__(self, transport: Any, wants: ssl.SSLContext | None = None, session: Any = None) -> None:
        self._transport = transport
        self.received = b""
        """Every byte that came."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        wants = wants or context()
        self.tls = wants.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost", session=session)

    def hello(self) -> bytes:
        """The first message, not sent."""
        self._try_to_shake()
        return self._outgoing.read()

    def shake(self) -> None:
        """The whole handshake. ssl.SSLError when the server does not want."""
        while not self._try_to_shake():
            if not self.exchange():
                raise ssl.SSLError("the server says nothing")
        self.exchange()

    def send(self, data: bytes) -> None:
        """Send, and read what comes at once."""
        self.tls.write(data)
        self.exchange()

    def end(self) -> None:
        """Say that nothing more will come."""
        with suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        self.exchange()

    def read(self) -> bytes:
        """All that has come; whether a goodbye was the end of it, `has_been_ended` says."""
        self.exchange()
        found = b""
        try:
            while piece := self.tls.read(65536):
                found += piece
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return found

    @property
    def has_been_ended(self) -> bool:
        """Whether the server has said goodbye."""
        self.exchange()
        try:
            return self.tls.read(1) == b""
        except ssl.SSLZeroReturnError:
            return True
        except ssl.SSLWantReadError:
            return False

    def exchange(self) -> bool:
        """Bytes go to the server and come from it; returns whether any came."""
        data = self._outgoing.read()
        if data:
            self._transport.protocol.dataReceived(data)
        answer = self._transport.value()
        self._transport.clear()
        self.received += answer
        self._incoming.write(answer)
        return bool(answer)

    def fail_to_shake(self) -> bytes:
        """A handshake that must fail; every byte that came."""
        try:
            while not self._try_to_shake():
                if not self.exchange():
                    return self.received
            self.exchange()
        except ssl.SSLError:
            pass
        return self.received

    def _try_to_shake(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

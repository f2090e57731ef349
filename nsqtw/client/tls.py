"""
TLS of a client connection without IO: OpenSSL between two memory buffers (Python's `ssl`).

The same code serves both event loops, the upgrade after IDENTIFY, and HTTPS queries.
"""

from __future__ import annotations

import ssl

from nsqtw.client.options import ClientOptions
from nsqtw.errors import InvalidResponse, OptionError

_VERSIONS = {
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}
_READ_BYTES = 256 * 1024


def context_of(
    root_ca_file: str, cert: str = "", key: str = "", *, is_verification_skipped: bool = False
) -> ssl.SSLContext:
    """
    Return the TLS of a client: whom it trusts, without `root_ca_file` the authorities of the system, and its
    certificate. OSError when a file cannot be used.
    """
    context = ssl.create_default_context(cafile=root_ca_file or None)
    if cert:
        context.load_cert_chain(cert, key or None)
    if is_verification_skipped:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def tls_context(options: ClientOptions) -> ssl.SSLContext:
    """The settings of TLS. OptionError when a file cannot be read."""
    files = (options.tls_root_ca_file, options.tls_cert, options.tls_key)
    try:
        context = context_of(*files, is_verification_skipped=options.tls_insecure_skip_verify)
    except OSError as error:
        raise OptionError(f"TLS files of the client cannot be used: {error}") from error
    if options.tls_min_version:
        context.minimum_version = _VERSIONS[options.tls_min_version]
    return context


class TlsStream:
    """One side of TLS. The server's certificate must be for `name`. InvalidResponse for a name that none can have."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        except ValueError as error:
            raise InvalidResponse(f"TLS cannot be used with the host name {name!r} - {error}") from error
        self.is_open = False
        """Whether the handshake is complete."""
        self.failure: InvalidResponse | None = None
        """Why nothing more can be decrypted."""
        self._handshake()

    def feed(self, data: bytes) -> bytes:
        """
        Return the plain text of received data. InvalidResponse when the handshake fails. When the decryption fails,
        `failure` is set, and the result is what came before.
        """
        self._incoming.write(data)
        if not self.is_open:
            self._handshake()
            if not self.is_open:
                return b""
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(_READ_BYTES):
                pieces.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        except ssl.SSLError as error:
            self.failure = InvalidResponse(f"TLS failed - {error}")
        return b"".join(pieces)

    def send(self, data: bytes) -> None:
        """Encrypt, after the handshake."""
        self._tls.write(data)

    def data_to_send(self) -> bytes:
        """Remove and return what is to be written."""
        return self._outgoing.read()

    def _handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise InvalidResponse(f"TLS handshake failed - {error}") from error
        self.is_open = True

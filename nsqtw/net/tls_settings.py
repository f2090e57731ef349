"""
The settings of new TLS connections: the certificate, and the requirements for clients, until the files are read again.

    --tls-client-auth-policy    ""              no certificate is asked for
                                require         any will do
                                require-verify  one that --tls-root-ca-file has signed, or else the system's authorities

Connections of clients and of HTTPS have the same settings. A connection keeps those it began with.

There is no resuming of sessions: a handshake costs little beside a connection that lives for hours, and a client whose
certificate is not wanted any more must not come back with a ticket. Renegotiation, which only TLS 1.2 and older have,
and compression in TLS are off. OpenSSL gives its buffers back in between: a connection that waits costs half as much.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from OpenSSL import SSL

from nsqtw.errors import OptionError
from nsqtw.net.certificates import (
    SECURITY_LEVEL,
    TlsOptions,
    check_certificates,
    expiry_of,
    in_words,
    is_weak_allowed,
)
from nsqtw.net.tls_authorities import check_strength
from nsqtw.net.tls_transport import TlsTransport
from nsqtw.options.types import REQUIRE, REQUIRE_VERIFY
from nsqtw.runtime.reactor import Reactor
from nsqtw.upgrades import StartTls

_MODERN = b"ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:!aNULL:@SECLEVEL=%d" % SECURITY_LEVEL
_OLD = b"DEFAULT:@SECLEVEL=0"
"""The security level for TLS 1.0 and 1.1, which need algorithms that are no longer secure."""
_HELLO_BYTES = 65536


class TlsSettings:
    """Made from the options that name files. OptionError when these cannot be used."""

    def __init__(self, options: TlsOptions, reactor: Reactor) -> None:
        self._options = options
        self._reactor = reactor
        self._context = make_context(options)
        self.expiry = expiry_of(options.tls_cert)
        """The first end of the time of a certificate of the chain; None if it cannot be read."""

    def read(self, options: TlsOptions) -> Callable[[], None]:
        """
        Read the files that `options` name. Returns the function that uses them for new connections. OptionError when
        they cannot be used.
        """
        context, expiry = make_context(options), expiry_of(options.tls_cert)

        def use() -> None:
            self._context, self.expiry = context, expiry

        return use

    def expiries(self) -> dict[str, float]:
        """Return when the certificate expires, by its file, as a unix time."""
        return {} if self.expiry is None else {self._options.tls_cert: self.expiry.timestamp()}

    def transport(self, application: Any, start: StartTls, *, connects: bool) -> TlsTransport:
        """A transport for `application`, which is told of its connection only if it `connects` with it."""
        connection = SSL.Connection(self._context, None)
        return TlsTransport(application, connection, start, self._reactor, connects=connects)


def make_context(options: TlsOptions) -> SSL.Context:
    """Make an OpenSSL context from the files and options. OptionError."""
    check_certificates(options)
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(options.tls_min_version)
    context.set_cipher_list(_OLD if is_weak_allowed(options) else _MODERN)
    context.set_options(
        SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_TICKET | SSL.OP_CIPHER_SERVER_PREFERENCE
    )
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    try:
        context.use_certificate_chain_file(options.tls_cert)
        context.use_privatekey_file(options.tls_key)
        context.check_privatekey()
        _ask_for_certificates(context, options)
        _answer_once(context)
    except SSL.Error as failure:
        reason = str(failure.args[0][-1][-1]) if failure.args and failure.args[0] else str(failure)
        text = f"--tls-cert and --tls-key cannot be used: {options.tls_cert}, {options.tls_key}: {in_words(reason)}"
        raise OptionError(f"failed to build TLS config - {text}") from failure
    return context


def _answer_once(context: SSL.Context) -> None:
    """
    Answer the first message of a handshake. SSL.Error when that is not possible: OpenSSL builds the chain of the
    certificate then, also from the authorities for clients, and would refuse a part of it for every client.
    """
    permissive = SSL.Context(SSL.TLS_CLIENT_METHOD)
    permissive.set_cipher_list(b"ALL:@SECLEVEL=0")
    client, server = SSL.Connection(permissive, None), SSL.Connection(context, None)
    client.set_connect_state()
    server.set_accept_state()
    with suppress(SSL.WantReadError):
        client.do_handshake()
    server.bio_write(client.bio_read(_HELLO_BYTES))
    with suppress(SSL.WantReadError):
        server.do_handshake()


def _ask_for_certificates(context: SSL.Context, options: TlsOptions) -> None:
    policy = options.tls_client_auth_policy
    if policy not in (REQUIRE, REQUIRE_VERIFY):
        return
    if policy == REQUIRE_VERIFY:
        if options.tls_root_ca_file:
            if not is_weak_allowed(options):
                check_strength(options.tls_root_ca_file, "--tls-root-ca-file")
            context.load_verify_locations(options.tls_root_ca_file)
            context.load_client_ca(options.tls_root_ca_file.encode())
        else:
            context.set_default_verify_paths()
    verify = _verify if policy == REQUIRE_VERIFY else _accept
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, verify)


def _accept(connection: SSL.Connection, certificate: object, number: int, depth: int, good: int) -> bool:
    return True


def _verify(connection: SSL.Connection, certificate: object, number: int, depth: int, good: int) -> bool:
    if not good:
        connection.set_app_data(number)
    return bool(good)

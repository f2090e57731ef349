"""
Credentials for the servers of a cluster: secrets and TLS files.

A secret is sent as `Authorization: Bearer SECRET`. One of the form `basic USER:PASSWORD` is sent as HTTP's Basic
authentication, for a proxy in front of the servers.

The files are read once. Which server may have a secret is the rule of `nsqtw.cluster.trust`; over plain HTTP a request
has it only when the server has asked for it with 401.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer

from nsqtw.cluster.trust import Trust
from nsqtw.errors import OptionError
from nsqtw.net.tls_client import NO_PAIR, authorities_in, pair_in, tls_to
from nsqtw.options.files import exposures, read_secret


@attrs.frozen(kw_only=True)
class ClusterCredentials:
    """
    Secrets, and paths of TLS files (PEM). Without `root_ca_file` the authorities of the system are trusted.
    `sends_secrets_to_named_nodes`: secrets go to every server, also to those that only an nsqlookupd names.
    """

    nsqd_secret: str = attrs.field(default="", repr=False)
    lookupd_secret: str = attrs.field(default="", repr=False)
    root_ca_file: str = ""
    cert: str = ""
    key: str = ""
    is_verification_skipped: bool = False
    sends_secrets_to_named_nodes: bool = False

    def trust_in(self, addresses: Iterable[str], *, is_strict: bool = False) -> Trust:
        """Return which servers may have a secret when the user has given these addresses for it; `Trust.is_strict`."""
        return Trust(
            addresses=addresses,
            has_own_authority=bool(self.root_ca_file) and not self.is_verification_skipped,
            is_for_all=self.sends_secrets_to_named_nodes,
            is_strict=is_strict,
        )


def read_secrets(files: dict[str, str]) -> tuple[list[str], list[str]]:
    """
    Return the secret of each file, by the option that names it, "" for no file; and warnings about files that every
    user of the machine can read. OptionError.
    """
    return [read_secret(path, flag) for flag, path in files.items()], exposures(files)


@implementer(IPolicyForHTTPS)
class TlsPolicy:
    """TLS towards the servers: version 1.2 or later. OptionError when a file cannot be used."""

    def __init__(self, credentials: ClusterCredentials) -> None:
        self._is_verification_skipped = credentials.is_verification_skipped
        self._pair = _pair(credentials) if credentials.cert else NO_PAIR
        self._authorities = _authorities(credentials.root_ca_file) if credentials.root_ca_file else []

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
        """IPolicyForHTTPS API."""
        name = hostname.decode("ascii")
        if not self._is_verification_skipped:
            return tls_to(name, self._authorities, self._pair)
        from twisted.internet.ssl import CertificateOptions, TLSVersion

        context = CertificateOptions(**self._pair, raiseMinimumTo=TLSVersion.TLSv1_2).getContext()
        return _Unverified(name, context)


@implementer(IOpenSSLClientConnectionCreator)
class _Unverified:
    """Connections that accept any certificate."""

    def __init__(self, name: str, context: Any) -> None:
        self._name = name
        self._context = context

    def clientConnectionForTLS(self, tlsProtocol: Any) -> Any:
        """IOpenSSLClientConnectionCreator API."""
        from OpenSSL import SSL

        connection = SSL.Connection(self._context, None)
        if not isIPAddress(self._name) and not isIPv6Address(self._name):
            connection.set_tlsext_host_name(self._name.encode("ascii"))
        return connection


def _pair(credentials: ClusterCredentials) -> Mapping[str, Any]:
    """Return a client certificate and its key, as Twisted's options for connections. OptionError."""
    from OpenSSL import SSL, crypto
    from twisted.internet.ssl import CertificateOptions

    try:
        pair = pair_in(credentials.cert, credentials.key)
        CertificateOptions(**pair).getContext()
    except OptionError as error:
        raise OptionError(_unusable_pair(credentials, str(error))) from error
    except (crypto.Error, SSL.Error, ValueError) as error:
        reason = "no certificate (PEM), no key without a password, or they do not belong together"
        raise OptionError(_unusable_pair(credentials, reason)) from error
    return pair


def _authorities(path: str) -> list[Any]:
    from OpenSSL import crypto

    try:
        found = authorities_in(path)
    except OptionError as error:
        raise OptionError(f"failed to read TLS root CA file {path} - {error}") from error
    except crypto.Error:
        found = []
    if not found:
        raise OptionError(f"failed to AppendCertsFromPEM {path}: it must have certificates (PEM)")
    return found


def _unusable_pair(credentials: ClusterCredentials, reason: str) -> str:
    return f"failed to LoadX509KeyPair {credentials.cert}, {credentials.key} - {reason}"

"""TLS: the check of nsqd's certificate, and the connector's own certificate."""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL, crypto
from service_identity import VerificationError
from twisted.internet import ssl
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer

from pyspark_nsq.errors import OptionError
from pyspark_nsq.http.failures import reason_of
from pyspark_nsq.options.files import read_file
from pyspark_nsq.options.security import Security

#: Errors when one side does not trust the other.
NOT_TRUSTED = (SSL.Error, VerificationError)


def told(error: BaseException | None) -> str:
    """Return the error of a connection, with TLS or without, in one line."""
    return reason_of(error) if isinstance(error, NOT_TRUSTED) else f"{type(error).__name__}: {error}"


@implementer(IPolicyForHTTPS)
class HttpsPolicy:
    """The context of each HTTPS connection, by the options of `security`.

    Raises OptionError for a file that cannot be read, or holds something else.
    """

    def __init__(self, security: Security) -> None:
        self._trust = _authorities(security)
        self._own = _own_certificate(security)
        self._verify = security.verify

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
        if self._verify:
            return ssl.optionsForClientTLS(hostname.decode("ascii"), self._trust, self._own)
        return _AnyServer(self._own)


@implementer(IOpenSSLClientConnectionCreator)
class _AnyServer:
    """Accepts any certificate of the server."""

    def __init__(self, own: ssl.PrivateCertificate | None) -> None:
        made = own.options() if own else ssl.CertificateOptions()  # type: ignore[no-untyped-call]
        self._context: SSL.Context = made.getContext()
        self._context.set_verify(SSL.VERIFY_NONE, lambda *_: True)

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        return SSL.Connection(self._context, None)


def _authorities(security: Security) -> Any:
    """Return the authorities of `tls.caFile`; None for those of the machine."""
    if security.ca_file is None:
        return None
    path, text = read_file("tls.caFile", security.ca_file)
    marker = b"-----END CERTIFICATE-----"
    try:
        certificates = [ssl.Certificate.loadPEM(part + marker) for part in text.split(marker)[:-1]]
    except (SSL.Error, crypto.Error, ValueError):
        certificates = []
    if not certificates:
        raise OptionError(f'option "tls.caFile": {path} holds no certificate in PEM form')
    return ssl.trustRootFromCertificates(certificates)  # type: ignore[no-untyped-call]


def _own_certificate(security: Security) -> ssl.PrivateCertificate | None:
    if security.cert_file is None:
        return None
    _, certificate = read_file("tls.certFile", security.cert_file)
    path, key = read_file("tls.keyFile", security.key_file or security.cert_file)
    try:
        return ssl.PrivateCertificate.loadPEM(key + b"\n" + certificate)  # type: ignore[no-untyped-call,no-any-return]
    except (SSL.Error, crypto.Error, ValueError):
        raise OptionError(
            f'options "tls.certFile" and "tls.keyFile": {path} and its certificate cannot be used; they must be PEM '
            "files that belong together, the key without a password"
        ) from None

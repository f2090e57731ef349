"""Which auth servers are believed over HTTPS: those with a certificate of `--tls-root-ca-file`, or of the system's."""

from __future__ import annotations

from typing import Any

from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer

from nsqtw.net.certificates import certificates_in
from nsqtw.options.types import TLS_VERSIONS


@implementer(IPolicyForHTTPS)
class TrustedServers:
    """Name and certificate of a server must be right. TLS 1.2 or later, or what `lowest` says if that is later."""

    def __init__(self, authorities: str, lowest: int) -> None:
        self._authorities = authorities
        self._lowest = lowest
        self._roots: Any = None

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
        """IPolicyForHTTPS API."""
        # Who asks over HTTP does not wait for OpenSSL.
        from twisted.internet.ssl import TLSVersion, optionsForClientTLS, platformTrust

        if self._roots is None:
            self._roots = _roots_in(self._authorities) if self._authorities else platformTrust()  # type: ignore[no-untyped-call]
        lowest = TLSVersion.TLSv1_3 if self._lowest >= TLS_VERSIONS["tls1.3"] else TLSVersion.TLSv1_2
        return optionsForClientTLS(
            hostname.decode("ascii"), self._roots, extraCertificateOptions={"raiseMinimumTo": lowest}
        )


def _roots_in(path: str) -> Any:
    from twisted.internet.ssl import Certificate, trustRootFromCertificates

    return trustRootFromCertificates([Certificate.loadPEM(one) for one in certificates_in(path)])  # type: ignore[no-untyped-call]

"""
TLS towards servers, on Twisted's connections: whom a client trusts, the lowest version, and its own certificate.

OpenSSL is imported with the first connection: a client of plain servers does not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from nsqtw.net.certificates import certificates_in
from nsqtw.options.files import read_file
from nsqtw.options.types import TLS_MIN, TLS_VERSIONS

NO_PAIR: Final[Mapping[str, Any]] = MappingProxyType({})
"""The certificate of a client without one."""


def authorities_in(path: str) -> list[Any]:
    """Return the certificates of a file (PEM). OptionError when it cannot be read, crypto.Error when one is invalid."""
    from twisted.internet.ssl import Certificate

    return [Certificate.loadPEM(block) for block in certificates_in(path)]


def pair_in(certificate: str, key: str) -> Mapping[str, Any]:
    """
    Return the certificate of a client, with its chain, and its key, as Twisted's options for connections. OptionError
    when a file cannot be read; crypto.Error or ValueError when there is no certificate or key in it.
    """
    from OpenSSL import crypto

    pem = crypto.FILETYPE_PEM
    first, *others = [crypto.load_certificate(pem, block) for block in certificates_in(certificate)]
    return {
        "certificate": first,
        "privateKey": crypto.load_privatekey(pem, read_file(key), b""),
        "extraCertChain": others,
    }


def tls_to(
    name: str,
    authorities: Sequence[Any],
    pair: Mapping[str, Any] = NO_PAIR,
    lowest: int = TLS_VERSIONS[TLS_MIN],
) -> Any:
    """
    Return the TLS of connections to a server whose certificate is for `name` and signed by one of the authorities;
    without any, by one of the system. Version 1.2 or later, or what `lowest` says if that is later.
    """
    from twisted.internet.ssl import TLSVersion, optionsForClientTLS, platformTrust, trustRootFromCertificates

    roots: Any = trustRootFromCertificates(authorities) if authorities else platformTrust()  # type: ignore[no-untyped-call]
    version = TLSVersion.TLSv1_3 if lowest >= TLS_VERSIONS["tls1.3"] else TLSVersion.TLSv1_2
    return optionsForClientTLS(name, roots, extraCertificateOptions={**pair, "raiseMinimumTo": version})

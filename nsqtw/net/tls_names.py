"""
Names of TLS versions and cipher suites: OpenSSL's in, nsqd's out, for /stats, error frames and the log.

nsqd knows the names of thirteen cipher suites and shows the numbers of all others, those of TLS 1.3 among them.
"""

from __future__ import annotations

from functools import cache

from cryptography.x509 import NameOID
from OpenSSL import SSL

from nsqtw.upgrades import Secured

NOT_TLS = "tls: first record does not look like a TLS handshake"

_SUITES = {
    "RC4-SHA": "TLS_RSA_WITH_RC4_128_SHA",
    "DES-CBC3-SHA": "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "AES128-SHA": "TLS_RSA_WITH_AES_128_CBC_SHA",
    "AES256-SHA": "TLS_RSA_WITH_AES_256_CBC_SHA",
    "ECDHE-ECDSA-RC4-SHA": "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "ECDHE-ECDSA-AES128-SHA": "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "ECDHE-ECDSA-AES256-SHA": "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-RC4-SHA": "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "ECDHE-RSA-DES-CBC3-SHA": "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "ECDHE-RSA-AES128-SHA": "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "ECDHE-RSA-AES256-SHA": "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-AES128-GCM-SHA256": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
}
_REASONS = {
    "no shared cipher": "tls: no cipher suite supported by both client and server",
    "peer did not return a certificate": "tls: client didn't provide a certificate",
    "unsupported protocol": "tls: client offered only unsupported versions",
}
_FROM_THE_PEER = ("tlsv1 alert ", "tlsv13 alert ", "sslv3 alert ", "ssl/tls alert ")
_UNTRUSTED = "tls: failed to verify client certificate: x509: "
_VERIFICATIONS = {
    9: "certificate has expired or is not yet valid",
    10: "certificate has expired or is not yet valid",
    18: "certificate signed by unknown authority",
    19: "certificate signed by unknown authority",
    20: "certificate signed by unknown authority",
    21: "certificate signed by unknown authority",
    26: "certificate specifies an incompatible key usage",
}
"""OpenSSL's numbers for what is wrong with a certificate."""


def described(connection: SSL.Connection) -> Secured:
    """Return the result of a completed handshake."""
    version = connection.get_protocol_version_name().removeprefix("TLSv")
    return Secured(
        version=f"TLS{version if '.' in version else version + '.0'}",
        cipher_suite=suite_name(connection.get_cipher_name() or ""),
        common_name=_common_name(connection),
    )


def suite_name(name: str) -> str:
    """Return nsqd's name of a cipher suite."""
    return _SUITES.get(name) or f"Unknown {_numbers().get(name, 0)}"


def reason_of(error: SSL.Error, verification: int = 0) -> str:
    """
    Why a handshake or a connection failed. `verification` is OpenSSL's number for what is wrong with the client's
    certificate, 0 for nothing.
    """
    if isinstance(error, SSL.SysCallError):
        return "EOF"
    queue = error.args[0] if error.args else []
    reason = str(queue[-1][-1]) if queue else "closed"
    if reason == "certificate verify failed":
        return _UNTRUSTED + _VERIFICATIONS.get(verification, f"verification error {verification}")
    for start in _FROM_THE_PEER:
        if reason.startswith(start):
            return f"remote error: tls: {reason.removeprefix(start)}"
    return _REASONS.get(reason, f"tls: {reason}")


def _common_name(connection: SSL.Connection) -> str:
    """Return the common name of the client's certificate; empty without one that can be read."""
    try:
        certificate = connection.get_peer_certificate(as_cryptography=True)
        if certificate is None:
            return ""
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except Exception:  # OpenSSL takes certificates that others find wrong, each in a way of its own
        return ""
    return str(names[-1].value) if names else ""


@cache
def _numbers() -> dict[str, int]:
    """The numbers of all cipher suites that OpenSSL has, by its names."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return {cipher["name"]: cipher["id"] & 0xFFFF for cipher in context.get_ciphers()}

"""
Certificates for tests, made with openssl as their users make them.

    authority           signs itself
    server, renewed     for localhost and 127.0.0.1, signed by the authority
    client              signed by the authority; CN=friend
    stranger            signs itself; CN=stranger
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_SERVER = "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n"
_CLIENT = "extendedKeyUsage=clientAuth\n"


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    certificate: str
    key: str

    def flags(self) -> list[str]:
        """As a broker's options."""
        return [f"--tls-cert={self.certificate}", f"--tls-key={self.key}"]


class Certificates:
    """All of them, in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = self._sign_itself("authority")
        self.stranger = self._sign_itself("stranger")
        self.server = self._sign("server", "localhost", _SERVER)
        self.renewed = self._sign("renewed", "localhost", _SERVER)
        self.client = self._sign("client", "friend", _CLIENT)

    def _pair(self, name: str) -> Pair:
        return Pair(str(self._directory / f"{name}.crt"), str(self._directory / f"{name}.key"))

    def _sign_itself(self, name: str) -> Pair:
        pair = self._pair(name)
        subject = ["-subj", f"/CN={name}", "-days", "3650"]
        _openssl("req", "-x509", *_CURVE, *subject, "-keyout", pair.key, "-out", pair.certificate)
        return pair

    def _sign(self, name: str, common_name: str, extensions: str) -> Pair:
        pair, request = self._pair(name), str(self._directory / f"{name}.csr")
        file = self._directory / f"{name}.extensions"
        file.write_text(extensions)
        _openssl("req", *_CURVE, "-subj", f"/CN={common_name}", "-keyout", pair.key, "-out", request)
        authority = ["-CA", self.authority.certificate, "-CAkey", self.authority.key, "-CAcreateserial"]
        signed = ["-days", "3650", "-extfile", str(file), "-in", request, "-out", pair.certificate]
        _openssl("x509", "-req", *authority, *signed)
        return pair


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)

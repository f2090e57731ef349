"""The protection of a daemon in words, for the log of its start."""

from __future__ import annotations

from typing import Protocol

from nsqtw.options.types import REQUIRE, REQUIRE_VERIFY, TLS_REQUIRED


class TlsOptions(Protocol):
    """The options of a daemon that are about TLS, without the lowest version."""

    tls_cert: str
    tls_client_auth_policy: str
    tls_required: int


def tls_protection(options: TlsOptions) -> str:
    """`TLS is off`, `TLS is required with a client certificate` and so on."""
    if not options.tls_cert:
        return "TLS is off"
    required = {TLS_REQUIRED["false"]: "on", TLS_REQUIRED["true"]: "required"}
    certificate = {
        REQUIRE: " with a client certificate",
        REQUIRE_VERIFY: " with a client certificate that is verified",
    }
    return (
        f"TLS is {required.get(options.tls_required, 'required but for HTTP')}"
        f"{certificate.get(options.tls_client_auth_policy, '')}"
    )

"""
Connections to nsqlookupd: plain, as nsqd's, or with TLS from the first byte on; and the shared secret.

The files are read for each connection, so what is renewed is used from the next one on. A certificate must be for the
name in --lookupd-tcp-address.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS

from nsqtw.discovery.addresses import LookupdAddress
from nsqtw.net.certificates import certificates_in, check_lookupd_certificates
from nsqtw.options.broker import Options
from nsqtw.options.files import exposures, read_file, read_secret
from nsqtw.options.types import TLS_VERSIONS
from nsqtw.runtime.reactor import Reactor

SECRET_FLAG = "--lookupd-secret-file"


def check_lookupd(options: Options) -> list[str]:
    """
    OptionError when what the options name for nsqlookupd cannot be used. Returns warnings: what has no effect, and a
    secret that the network can read.
    """
    if options.lookupd_tls:
        check_lookupd_certificates(options.lookupd_tls_cert, options.lookupd_tls_key, options.lookupd_tls_root_ca_file)
        if options.lookupd_tls_root_ca_file:
            # Who connects plainly does not wait for it.
            from nsqtw.net.tls_authorities import check_strength

            check_strength(options.lookupd_tls_root_ca_file, "--lookupd-tls-root-ca-file")
    secret = read_secret(options.lookupd_secret_file, SECRET_FLAG)
    names = ("lookupd_tls_root_ca_file", "lookupd_tls_cert", "lookupd_tls_key")
    unused = [name for name in names if getattr(options, name) and not options.lookupd_tls]
    warnings = [f"--{name.replace('_', '-')} has no effect without --lookupd-tls" for name in unused]
    if secret and not options.lookupd_tls:
        warnings.append(f"{SECRET_FLAG} without --lookupd-tls: whoever sees the network learns the secret")
    files = {SECRET_FLAG: options.lookupd_secret_file}
    if options.lookupd_tls:
        files["--lookupd-tls-key"] = options.lookupd_tls_key
    return warnings + exposures(files)


def endpoint_to(reactor: Reactor, options: Options, lookupd: LookupdAddress, timeout: float) -> Any:
    """Return an endpoint that connects within `timeout` seconds. Any error when the files or the name are invalid."""
    endpoint: Any = HostnameEndpoint(reactor, lookupd.host, lookupd.port, timeout)
    return wrapClientTLS(_tls_to(lookupd.name, options), endpoint) if options.lookupd_tls else endpoint


def _tls_to(name: str, options: Options) -> Any:
    # Who connects plainly does not wait for OpenSSL.
    from OpenSSL import crypto
    from twisted.internet.ssl import (
        Certificate,
        TLSVersion,
        optionsForClientTLS,
        platformTrust,
        trustRootFromCertificates,
    )

    authorities = options.lookupd_tls_root_ca_file
    if authorities:
        roots = trustRootFromCertificates([Certificate.loadPEM(block) for block in certificates_in(authorities)])  # type: ignore[no-untyped-call]
    else:
        roots = platformTrust()  # type: ignore[no-untyped-call]
    is_highest = options.tls_min_version >= TLS_VERSIONS["tls1.3"]
    extra: dict[str, Any] = {"raiseMinimumTo": TLSVersion.TLSv1_3 if is_highest else TLSVersion.TLSv1_2}
    if options.lookupd_tls_cert:
        pem = crypto.FILETYPE_PEM
        first, *others = [crypto.load_certificate(pem, block) for block in certificates_in(options.lookupd_tls_cert)]
        key = crypto.load_privatekey(pem, read_file(options.lookupd_tls_key), b"")
        extra |= {"certificate": first, "privateKey": key, "extraCertChain": others}
    return optionsForClientTLS(name, roots, extraCertificateOptions=extra)

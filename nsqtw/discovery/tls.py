"""
Connections to nsqlookupd: plain, as nsqd's, or with TLS from the first byte on; and the shared secret.

The files are read for each connection, so what is renewed is used from the next one on. A certificate must be for the
name in --lookupd-tcp-address.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS

from nsqtw.discovery.addresses import LookupdAddress
from nsqtw.net.certificates import check_lookupd_certificates
from nsqtw.net.tls_client import NO_PAIR, authorities_in, pair_in, tls_to
from nsqtw.options.broker import Options
from nsqtw.options.files import exposures, read_secret
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
    authorities = options.lookupd_tls_root_ca_file
    cert, key = options.lookupd_tls_cert, options.lookupd_tls_key
    return tls_to(
        name,
        authorities_in(authorities) if authorities else (),
        pair_in(cert, key) if cert else NO_PAIR,
        options.tls_min_version,
    )

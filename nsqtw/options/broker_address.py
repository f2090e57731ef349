"""
Options of the broker, first part: its identity and addresses, and the nsqlookupds and auth servers that it asks.

`nsqtw.options.broker` has all options.
"""

from __future__ import annotations

import os
import re

import attrs

from nsqtw.gocompat.values import quoted
from nsqtw.options.addresses import MAX_PORT, is_host, is_listen_address, is_lookupd_address
from nsqtw.options.fields import (
    OURS_NOT_NEGATIVE,
    Limit,
    live,
    option,
)
from nsqtw.options.types import (
    ADDRESSES,
    BOOLEAN,
    DURATION,
    INTEGER,
    LEVEL,
    LEVELS,
    TEXT,
    TEXTS,
)


def hostname() -> str:
    """Return the host name of this machine."""
    return os.uname().nodename


def default_node_id() -> int:
    """CRC-32 of the MD5 of the host name, modulo 1024: nsqd's own choice, so ids look the same on a host."""
    from hashlib import md5
    from zlib import crc32

    return crc32(md5(hostname().encode(), usedforsecurity=False).digest()) % 1024


def not_an_address(value: str) -> str:
    """Return why a value is no address."""
    return f"{quoted(value)} is no address" if ":" in value else f"{quoted(value)} has no port"


def _lookupd_complaint(values: tuple[str, ...]) -> str:
    return not_an_address(next(value for value in values if not is_lookupd_address(value)))


_HOST_PATTERN = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
PORT = Limit(f"0 to {MAX_PORT}", lambda value: 0 <= value <= MAX_PORT, is_ours=True)
# Empty as in nsqd: nsqlookupd refuses such a broker, a broker without nsqlookupd needs no address.
BROADCAST_ADDRESS = Limit(
    "a host name or an IP address, without a port, or empty", lambda value: not value or is_host(value), is_ours=True
)
_LISTEN_TEXT = "host:port, or the path of a unix socket, which has a /"
LISTEN_ADDRESS = Limit(_LISTEN_TEXT, is_listen_address, complaint=not_an_address)
OPTIONAL_LISTEN_ADDRESS = attrs.evolve(
    LISTEN_ADDRESS, text=f"{_LISTEN_TEXT}, or empty", allows=lambda value: not value or is_listen_address(value)
)


@attrs.define(kw_only=True)
class AddressOptions:
    """Identity and addresses of a broker."""

    # Who we are
    node_id: int = option(
        INTEGER,
        attrs.Factory(default_node_id),
        "unique part of message ids; unless given, from the host name",
        key="id",
        limit=Limit("[0,1024)", lambda value: 0 <= value < 1024, step=4),
    )
    log_level: int = option(
        LEVEL, LEVELS["info"], "lowest level to log: debug, info, warn, error or fatal", reload=live
    )
    log_prefix: str = option(TEXT, "[nsqd] ", "prefix of every log line", reload=live)

    # Where we are reached
    tcp_address: str = option(
        TEXT,
        "0.0.0.0:4150",
        "address for TCP clients",
        limit=LISTEN_ADDRESS,
    )
    http_address: str = option(
        TEXT, "0.0.0.0:4151", "address for HTTP clients; empty for no HTTP", limit=OPTIONAL_LISTEN_ADDRESS
    )
    https_address: str = option(
        TEXT,
        "0.0.0.0:4152",
        "address for HTTPS clients, used when there is a certificate; empty for no HTTPS",
        limit=OPTIONAL_LISTEN_ADDRESS,
    )
    allowed_host: tuple[str, ...] = option(
        TEXTS,
        (),
        "name by which browsers, and on a loopback address all HTTP clients, may ask besides addresses and its own "
        "names; *.NAME for all below it, * for any; may be repeated",
        key="allowed_hosts",
        limit=Limit(
            "a host name without a port, *.NAME or *",
            lambda values: all(map(_HOST_PATTERN.fullmatch, values)),
            complaint=lambda values: f"{quoted(next(v for v in values if not _HOST_PATTERN.fullmatch(v)))} is none",
            is_ours=True,
        ),
        reload=live,
    )
    broadcast_address: str = option(
        TEXT,
        attrs.Factory(hostname),
        "address that nsqlookupd gives to consumers; by default the host name",
        limit=BROADCAST_ADDRESS,
    )
    broadcast_tcp_port: int = option(
        INTEGER, 0, "TCP port that nsqlookupd gives to consumers; 0: the real one", limit=PORT
    )
    broadcast_http_port: int = option(
        INTEGER, 0, "HTTP port that nsqlookupd gives to tools; 0: the real one", limit=PORT
    )
    lookupd_tcp_address: tuple[str, ...] = option(
        TEXTS,
        (),
        "address of an nsqlookupd, or with dns:// of one at each address of a name, with dns+srv:// of one for each of "
        "its SRV records; may be repeated",
        key="nsqlookupd_tcp_addresses",
        limit=Limit(
            "host:port, dns://host:port or dns+srv://name",
            lambda values: all(map(is_lookupd_address, values)),
            complaint=_lookupd_complaint,
            is_ours=True,
        ),
        reload=live,
    )
    lookupd_tls: bool = option(BOOLEAN, False, "speak TLS, from the first byte on, to every nsqlookupd", reload=live)
    lookupd_tls_root_ca_file: str = option(
        TEXT,
        "",
        "certificate authorities for nsqlookupd (PEM); empty for those of the system",
        reload=live,
    )
    lookupd_tls_cert: str = option(TEXT, "", "certificate of this nsqd for nsqlookupd (PEM)", reload=live)
    lookupd_tls_key: str = option(TEXT, "", "key of that certificate (PEM)", reload=live)
    lookupd_secret_file: str = option(
        TEXT, "", "file with the secret an nsqlookupd asks for; empty for none", reload=live
    )
    auth_http_address: tuple[str, ...] = option(
        ADDRESSES, (), "host:port or URL of an auth server, for --auth=http; may be repeated", key="auth_http_addresses"
    )
    auth_http_request_method: str = option(
        TEXT,
        "get",
        "HTTP method for the auth server",
        limit=Limit("post or get", lambda value: value in ("post", "get"), step=8),
    )
    http_client_connect_timeout: float = option(
        DURATION, 2.0, "for connecting to nsqlookupd and auth servers over HTTP", limit=OURS_NOT_NEGATIVE
    )
    http_client_request_timeout: float = option(
        DURATION, 5.0, "for a whole HTTP request to nsqlookupd and auth servers", limit=OURS_NOT_NEGATIVE
    )
    topology_region: str = option(TEXT, "", "region of this broker, for topology-aware consumption")
    topology_zone: str = option(TEXT, "", "zone of this broker, for topology-aware consumption")

"""
The options of nsqlookupd: `LookupdOptions`, the only declaration of each.

Names, defaults and meanings of the first group are nsqlookupd's, those of limits and TLS are
our nsqd's (`nsqtw.options.broker`); the rest is ours alone. Durations are seconds, as floats.
"""

from __future__ import annotations

import attrs

from nsqtw.options.broker import Options
from nsqtw.options.broker_address import BROADCAST_ADDRESS, LISTEN_ADDRESS, hostname
from nsqtw.options.command_line import CommandLine, OptionReader
from nsqtw.options.fields import (
    NOT_NEGATIVE,
    OURS_ABOVE_ZERO,
    OURS_NOT_NEGATIVE,
    OptionTable,
    live,
    option,
    same,
    while_set,
)
from nsqtw.options.types import (
    BOOLEAN,
    DURATION,
    INTEGER,
    SIZE,
    TEXT,
    TLS_REQUIRED,
    choice,
)

CHANGES, ALL, OFF = "changes", "all", "off"
"""The values of --http-auth."""


@attrs.define(kw_only=True)
class LookupdOptions:
    """The options of one nsqlookupd; without arguments, the original's defaults. A running one changes none of them."""

    # Who we are, and where we are reached
    log_level: int = same(Options, "log_level")
    log_prefix: str = option(TEXT, "[nsqlookupd] ", "prefix of every log line", reload=live)
    tcp_address: str = option(TEXT, "0.0.0.0:4160", "address for nsqds", limit=LISTEN_ADDRESS)
    http_address: str = option(
        TEXT,
        "0.0.0.0:4161",
        "address for HTTP clients",
        limit=LISTEN_ADDRESS,
    )
    allowed_host: tuple[str, ...] = same(Options, "allowed_host")
    broadcast_address: str = option(
        TEXT,
        attrs.Factory(hostname),
        "address that nsqds get in the answer to IDENTIFY; by default the host name",
        limit=BROADCAST_ADDRESS,
    )

    # What is answered
    inactive_producer_timeout: float = option(
        DURATION, 300.0, "time since its last PING after which an nsqd is not shown any more", limit=OURS_ABOVE_ZERO
    )
    tombstone_lifetime: float = option(
        DURATION, 45.0, "time a tombstone hides an nsqd from a topic", limit=OURS_NOT_NEGATIVE
    )
    data_path: str = option(
        TEXT, "", "directory for the snapshot of what is registered, which a restart begins with; empty for none"
    )

    # What all clients together may take, and how long one may (ours)
    max_connections: int = option(
        INTEGER,
        0,
        "connections over TCP and HTTP together; 0 for as many as open files allow",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_connections_per_address: int = same(Options, "max_connections_per_address")
    max_topics: int = option(
        INTEGER, 100_000, "topics that may be known; 0 for any number", limit=NOT_NEGATIVE, reload=live
    )
    max_channels: int = option(
        INTEGER,
        500_000,
        "channels, of all topics, that may be known; 0 for any number",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_registrations: int = option(
        INTEGER,
        1_000_000,
        "registrations of all nsqds together; 0 for any number",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_registrations_per_connection: int = option(
        INTEGER,
        100_000,
        "registrations of one nsqd; 0 for any number",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_watchers: int = option(
        INTEGER,
        1_000,
        "connections that may read /v2/watch at the same time; 0 for none",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_unfinished_size: int = option(
        SIZE,
        67_108_864,
        "bytes of incomplete HTTP requests that are kept, over all connections; 0 for any number",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    magic_timeout: float = same(Options, "magic_timeout")
    idle_timeout: float = option(
        DURATION,
        300.0,
        "time between two commands of an nsqd, which pings every 15s; 0 for any",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    http_header_timeout: float = same(Options, "http_header_timeout")
    http_idle_timeout: float = same(Options, "http_idle_timeout")
    body_timeout: float = same(Options, "body_timeout")
    min_body_rate: int = same(Options, "min_body_rate")
    write_timeout: float = same(Options, "write_timeout")

    # Who may ask (ours)
    tls_cert: str = option(
        TEXT, "", "certificate file (PEM); with one both ports take TLS beside plain connections", reload=while_set
    )
    tls_key: str = same(Options, "tls_key")
    tls_client_auth_policy: str = same(Options, "tls_client_auth_policy")
    tls_root_ca_file: str = option(TEXT, "", "certificate authorities for client certificates (PEM)", reload=live)
    tls_required: int = same(Options, "tls_required")
    tls_min_version: int = same(Options, "tls_min_version")
    peer_secret_file: str = option(
        TEXT,
        "",
        "file with the secret that an nsqd must show, its --lookupd-secret-file; empty for none",
        reload=while_set,
    )
    http_auth: str = option(
        choice(CHANGES, ALL, OFF),
        CHANGES,
        "with --peer-secret-file, which HTTP requests need the secret: those that change something (changes), "
        "all but those about its health (all), or none (off)",
    )
    log_format: str = same(Options, "log_format")
    nsq_compat: bool = option(
        BOOLEAN,
        False,
        "be as lenient as the original: ignore unknown config keys and stray words, and take values it takes",
    )

    def __attrs_post_init__(self) -> None:
        # As for nsqd: asking for client certificates at all, with any value, requires TLS.
        if self.tls_client_auth_policy and self.tls_required == TLS_REQUIRED["false"]:
            self.tls_required = TLS_REQUIRED["true"]


NSQLOOKUPD = OptionTable("nsqlookupd", LookupdOptions)
NSQLOOKUPD_READER: OptionReader[LookupdOptions, CommandLine] = OptionReader(NSQLOOKUPD, CommandLine)

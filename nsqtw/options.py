"""
Every option of the broker, said once: `Options`.

Flags, environment variables, config keys, defaults, bounds, help, pages of documentation and what GET /config
answers all come from this table. Names, defaults and meanings are nsqd's (nsqd specification 4.2); the last
group is ours. Durations are seconds, as floats.

`nsqtw.option_sources` reads the options of a start, `nsqtw.option_pages` shows the table to people, single
values are read by `nsqtw.option_values`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from typing import Any

import attrs

from nsqtw.errors import OptionError
from nsqtw.go_values import shown
from nsqtw.option_values import (
    ADDRESSES,
    AUTHORIZER,
    BOOLEAN,
    DURATION,
    FRACTIONS,
    INTEGER,
    LEVEL,
    LEVELS,
    TEXT,
    TEXTS,
    TLS_MIN,
    TLS_REQUIRED,
    TLS_REQUIREMENT,
    TLS_VERSION,
    TLS_VERSIONS,
    Kind,
    choice,
)
from nsqtw.topic_rules import DURABILITIES, LATEST, STARTS, Retention, TopicRule, chosen

CHECKS_BEFORE_TLS = range(3, 5)
CHECKS_AFTER_TLS = range(8, 20)
_OURS = 19


@attrs.frozen
class Limit:
    """
    What an option's value must be. `text` ends the sentence "--flag must be ...". `step` says when it is looked
    at: nsqd's checks have their numbers in nsqd specification 4.3, ours, of what nsqd crashes on later, come last.
    `complaint` is what nsqd says of a value where it does not name the flag. Without the option `only_with` the
    value is not used.
    """

    text: str
    allows: Callable[[Any], bool]
    step: int = _OURS
    complaint: Callable[[Any], str] | None = None
    only_with: str = ""

    def refusal(self, flag: str, value: Any) -> str:
        """Why `value` will not do."""
        sentence = f"--{flag} must be {self.text}"
        return sentence if self.complaint is None else f"{self.complaint(value)}; {sentence}"


@attrs.frozen
class Option:
    """
    One line of the table. `name` is the attribute of `Options`, `default` as a user would write it; it is empty where
    the default is derived from the machine. `field` is nsqd's name for it in an error text, empty where that follows
    from the key.
    """

    name: str
    flag: str
    variable: str
    key: str
    field: str
    kind: Kind
    help: str
    limit: Limit | None
    default: str
    is_derived: bool


def hostname() -> str:
    """What the operating system calls this machine."""
    return os.uname().nodename


def default_node_id() -> int:
    """CRC-32 of the MD5 of the host name, modulo 1024: nsqd's own choice, so ids look the same on a host."""
    from hashlib import md5
    from zlib import crc32

    return crc32(md5(hostname().encode(), usedforsecurity=False).digest()) % 1024


def _option(
    kind: Kind,
    default: Any,
    text: str,
    *,
    key: str | None = None,
    field: str = "",
    limit: Limit | None = None,
) -> Any:
    shown = "" if isinstance(default, attrs.Factory) else kind.show(default)  # type: ignore[arg-type]
    return attrs.field(
        default=default,
        metadata={"kind": kind, "key": key, "field": field, "help": text, "limit": limit, "default": shown},
    )


VARIABLE_PREFIX = "NSQTW_"
"""What the name of an environment variable of ours starts with; the flag follows, in upper case with `_`."""

NSQ_COMPAT: dict[str, Any] = {
    "durability": "memory",
    "keep_deferred": False,
    "tls_min_version": TLS_VERSIONS["tls1.0"],
}
"""What --nsq-compat puts in the place of the defaults. An option that was given keeps what was given."""

_ABOVE_ZERO = Limit("greater than 0", lambda value: value > 0)
_NOT_NEGATIVE = Limit("0 or more", lambda value: value >= 0)


def _is_percentile(value: float) -> bool:
    return 0 < value <= 1


def _percentile_complaint(values: tuple[float, ...]) -> str:
    wrong = next(value for value in values if not _is_percentile(value))
    return f"invalid E2E processing latency percentile: {shown(wrong)}"


@attrs.define(kw_only=True)
class Options:
    """
    The options of one broker; without arguments, nsqd's defaults.

    Values that were read are taken as they are: `check` says whether a broker can run with them. A running
    broker changes some of them (`log_level`, `lookupd_tcp_address`, the broadcast ports once they are known).
    """

    # Who we are
    node_id: int = _option(
        INTEGER,
        attrs.Factory(default_node_id),
        "unique part of message ids; unless given, from the host name",
        key="id",
        limit=Limit("[0,1024)", lambda value: 0 <= value < 1024, step=4),
    )
    log_level: int = _option(LEVEL, LEVELS["info"], "lowest level to log: debug, info, warn, error or fatal")
    log_prefix: str = _option(TEXT, "[nsqd] ", "what every log line starts with")

    # Where we are reached
    tcp_address: str = _option(
        TEXT,
        "0.0.0.0:4150",
        "address for TCP clients",
        limit=Limit("host:port, or the path of a unix socket", bool),
    )
    http_address: str = _option(
        TEXT, "0.0.0.0:4151", "host:port, or the path of a unix socket, for HTTP clients; empty for no HTTP"
    )
    https_address: str = _option(
        TEXT,
        "0.0.0.0:4152",
        "host:port for HTTPS clients, used when there is a certificate; empty for no HTTPS",
    )
    broadcast_address: str = _option(
        TEXT, attrs.Factory(hostname), "address told to nsqlookupd; unless given, the host name"
    )
    broadcast_tcp_port: int = _option(INTEGER, 0, "TCP port told to nsqlookupd; 0 for the real one")
    broadcast_http_port: int = _option(INTEGER, 0, "HTTP port told to nsqlookupd; 0 for the real one")
    lookupd_tcp_address: tuple[str, ...] = _option(
        TEXTS,
        (),
        "host:port of an nsqlookupd, dns://host:port for one at each address of a name, or dns+srv://name; "
        "may be repeated",
        key="nsqlookupd_tcp_addresses",
    )
    lookupd_tls: bool = _option(BOOLEAN, False, "speak TLS, from the first byte on, to every nsqlookupd")
    lookupd_tls_root_ca_file: str = _option(
        TEXT, "", "certificate authorities for nsqlookupd (PEM); empty for those of the system"
    )
    lookupd_tls_cert: str = _option(TEXT, "", "certificate shown to nsqlookupd (PEM)")
    lookupd_tls_key: str = _option(TEXT, "", "key of that certificate (PEM)")
    lookupd_secret_file: str = _option(TEXT, "", "file with the secret an nsqlookupd asks for; empty for none")
    auth_http_address: tuple[str, ...] = _option(
        ADDRESSES, (), "host:port or URL of an auth server, for --auth=http; may be repeated", key="auth_http_addresses"
    )
    auth_http_request_method: str = _option(
        TEXT,
        "get",
        "HTTP method for the auth server",
        limit=Limit("post or get", lambda value: value in ("post", "get"), step=8),
    )
    http_client_connect_timeout: float = _option(
        DURATION, 2.0, "for connecting to nsqlookupd and auth servers over HTTP"
    )
    http_client_request_timeout: float = _option(
        DURATION, 5.0, "for a whole HTTP request to nsqlookupd and auth servers"
    )
    topology_region: str = _option(TEXT, "", "region of this broker, for topology-aware consumption")
    topology_zone: str = _option(TEXT, "", "zone of this broker, for topology-aware consumption")

    # Where messages are kept
    data_path: str = _option(TEXT, "", "directory for everything that is stored; empty for the current one")
    mem_queue_size: int = _option(
        INTEGER,
        10_000,
        "messages of a topic or channel counted as in memory, and kept of an ephemeral one",
        limit=_NOT_NEGATIVE,
    )
    max_bytes_per_file: int = _option(INTEGER, 104_857_600, "size at which a log file is closed and the next begun")
    sync_every: int = _option(INTEGER, 2_500, "accepted; what is stored is synced every --sync-timeout")
    sync_timeout: float = _option(DURATION, 2.0, "longest time between syncs of stored files", limit=_ABOVE_ZERO)
    queue_scan_selection_count: int = _option(
        INTEGER, 20, "accepted; every due timeout is noticed in time", limit=_NOT_NEGATIVE
    )
    queue_scan_worker_pool_max: int = _option(INTEGER, 4, "accepted; every due timeout is noticed in time")

    # Messages and commands
    msg_timeout: float = _option(DURATION, 60.0, "time a consumer has for a message unless it asks for another")
    max_msg_timeout: float = _option(DURATION, 900.0, "longest msg_timeout a consumer may ask for, and TOUCH may reach")
    max_msg_size: int = _option(INTEGER, 1_048_576, "bytes of the largest message")
    max_body_size: int = _option(INTEGER, 5_242_880, "bytes of the largest command body (MPUB, IDENTIFY, AUTH)")
    max_req_timeout: float = _option(DURATION, 3_600.0, "longest delay of REQ, and of DPUB unless that has its own")

    # What a client may ask for
    max_heartbeat_interval: float = _option(DURATION, 60.0, "longest heartbeat interval a client may ask for")
    max_rdy_count: int = _option(INTEGER, 2_500, "largest RDY count of a client")
    max_output_buffer_size: int = _option(INTEGER, 65_536, "largest output buffer, in bytes, a client may ask for")
    max_output_buffer_timeout: float = _option(
        DURATION, 30.0, "longest time between flushes of the output buffer a client may ask for"
    )
    min_output_buffer_timeout: float = _option(
        DURATION, 0.025, "shortest time between flushes of the output buffer a client may ask for"
    )
    output_buffer_timeout: float = _option(
        DURATION,
        0.25,
        "time between flushes of the output buffer unless a client asks for another",
        limit=_ABOVE_ZERO,
    )
    max_channel_consumers: int = _option(INTEGER, 0, "consumers of one channel; 0 for any number")

    # What all clients together may take, and how long one may (ours)
    max_topics: int = _option(
        INTEGER, 0, "topics clients may make the broker have; 0 for any number", limit=_NOT_NEGATIVE
    )
    max_channels: int = _option(
        INTEGER, 0, "channels, of all topics, clients may make the broker have; 0 for any number", limit=_NOT_NEGATIVE
    )
    max_connections: int = _option(
        INTEGER,
        0,
        "connections over TCP, HTTP and HTTPS together; 0 for as many as open files allow",
        limit=_NOT_NEGATIVE,
    )
    max_connections_per_address: int = _option(
        INTEGER, 0, "connections, of any kind, of one IP address; 0 for any number", limit=_NOT_NEGATIVE
    )
    max_unfinished_size: int = _option(
        INTEGER,
        268_435_456,
        "bytes kept of commands and requests that have come in part, over all connections; 0 for any number",
        limit=_NOT_NEGATIVE,
    )
    magic_timeout: float = _option(
        DURATION, 10.0, "time a TCP client has to say which protocol it speaks; 0 for any", limit=_NOT_NEGATIVE
    )
    http_header_timeout: float = _option(
        DURATION, 10.0, "time for the head of an HTTP request; 0 for any", limit=_NOT_NEGATIVE
    )
    http_idle_timeout: float = _option(
        DURATION, 600.0, "time between two HTTP requests on a connection; 0 for any", limit=_NOT_NEGATIVE
    )
    body_timeout: float = _option(
        DURATION,
        30.0,
        "time in which a body must arrive, or --min-body-rate go on arriving; 0 for any",
        limit=_NOT_NEGATIVE,
    )
    min_body_rate: int = _option(
        INTEGER, 256, "bytes a second of a body that are enough to go on waiting for it", limit=_ABOVE_ZERO
    )
    write_timeout: float = _option(
        DURATION,
        120.0,
        "time in which a client must read something of what waits for it; 0 for any",
        limit=_NOT_NEGATIVE,
    )
    stop_timeout: float = _option(
        DURATION,
        4.0,
        "time a stop waits for the disk; what is not stored then comes again, as after a crash; 0 for any",
        limit=_NOT_NEGATIVE,
    )

    # Statistics
    statsd_address: str = _option(TEXT, "", "host:port of a statsd, over UDP; empty for none")
    statsd_prefix: str = _option(TEXT, "nsq.%s", "prefix of statsd keys, %s standing for the host")
    statsd_interval: float = _option(
        DURATION,
        60.0,
        "time between pushes to statsd",
        limit=Limit("greater than 1s", lambda value: value > 1, only_with="statsd_address"),
    )
    statsd_mem_stats: bool = _option(BOOLEAN, True, "push statistics of memory and garbage collection too")
    statsd_udp_packet_size: int = _option(INTEGER, 508, "bytes of the largest packet to statsd")
    statsd_exclude_ephemeral: bool = _option(BOOLEAN, False, "leave ephemeral topics and channels out")
    e2e_processing_latency_window_time: float = _option(
        DURATION,
        600.0,
        "time that end-to-end latencies are computed over",
        limit=attrs.evolve(_ABOVE_ZERO, only_with="e2e_processing_latency_percentile"),
    )
    e2e_processing_latency_percentile: tuple[float, ...] = _option(
        FRACTIONS,
        (),
        "latency percentiles to compute; may be repeated or comma-separated",
        key="e2e_processing_latency_percentiles",
        limit=Limit(
            "above 0 and at most 1",
            lambda values: all(map(_is_percentile, values)),
            step=9,
            complaint=_percentile_complaint,
        ),
    )

    # TLS and compression
    tls_cert: str = _option(TEXT, "", "certificate file (PEM)")
    tls_key: str = _option(TEXT, "", "key file (PEM)")
    tls_client_auth_policy: str = _option(TEXT, "", "client certificates: require, or require-verify")
    tls_root_ca_file: str = _option(TEXT, "", "certificate authorities for client certificates and auth servers (PEM)")
    tls_required: int = _option(
        TLS_REQUIREMENT,
        TLS_REQUIRED["false"],
        "clients must use TLS: false, true, or tcp-https for all but HTTP",
    )
    tls_min_version: int = _option(
        TLS_VERSION, TLS_VERSIONS[TLS_MIN], "lowest version of TLS: tls1.0, tls1.1, tls1.2 or tls1.3"
    )
    deflate: bool = _option(BOOLEAN, True, "allow deflate compression", field="DeflateEnabled")
    max_deflate_level: int = _option(
        INTEGER,
        6,
        "highest deflate level a client may ask for",
        limit=Limit("[1,9]", lambda value: 1 <= value <= 9, step=3),
    )
    snappy: bool = _option(BOOLEAN, True, "allow snappy compression", field="SnappyEnabled")

    enable_experiment: tuple[str, ...] = _option(
        TEXTS, (), "experiment to turn on; known is topology-aware-consumption; may be repeated", field="Experiments"
    )

    # Ours
    backend: str = _option(TEXT, "disk", "how messages are stored: NAME or NAME:ARGUMENT; see --help-backend")
    durability: str = _option(
        choice(*DURABILITIES),
        "os",
        "what OK means: the operating system has the message (os), it is on stable storage (fsync), or, nsqd's way, "
        "it may wait a second (memory)",
    )
    retention_time: float = _option(
        DURATION,
        0.0,
        "how long a topic keeps messages that are finished, for channels that are moved back and readers of its log; "
        "0 for no limit by time, and with --retention-bytes 0 too, not at all",
        limit=_NOT_NEGATIVE,
    )
    retention_bytes: int = _option(
        INTEGER, 0, "how many bytes of finished messages a topic keeps; 0 for no limit by size", limit=_NOT_NEGATIVE
    )
    channel_start: str = _option(
        choice(*STARTS),
        LATEST,
        "where a new channel starts: at what no channel was given yet (latest), or at the oldest kept (earliest)",
    )
    keep_deferred: bool = _option(
        BOOLEAN, True, "deferred messages keep their time over a restart, and where nsqd would spill them to disk"
    )
    max_defer_timeout: float = _option(
        DURATION,
        0.0,
        "longest delay of DPUB and of /pub?defer=, which may be days (240h); 0 for --max-req-timeout",
        limit=_NOT_NEGATIVE,
    )
    requeue_on_disconnect: bool = _option(
        BOOLEAN, False, "what a consumer has in flight goes back to its channel at once when its connection ends"
    )
    nsq_compat: bool = _option(
        BOOLEAN,
        False,
        "be as careless as nsqd: other defaults for " + " and ".join(f"--{n.replace('_', '-')}" for n in NSQ_COMPAT),
    )
    log_format: str = _option(choice("text", "json"), "text", "log lines as text, nsqd's way, or as JSON objects")

    auth: str = _option(
        AUTHORIZER, "", "who may do what: NAME or NAME:ARGUMENT, see --help-auth; empty for everybody everything"
    )
    http_auth: str = _option(
        choice("auto", "on", "off"),
        "auto",
        "whether HTTP needs a credential as TCP does: on, off, or auto, which is on with --auth, and off, nsqd's way, "
        "with no more than --auth-http-address",
    )

    topic_rules: tuple[TopicRule, ...] = ()
    """No option: what the file says of some topics, `[topic."orders.*"]`."""

    @property
    def longest_delay(self) -> float:
        """Of a message that is published, in seconds."""
        return self.max_defer_timeout or self.max_req_timeout

    def durability_of(self, topic: str) -> str:
        """The durability class of a topic, unless it was given another one while the broker ran."""
        durability: str = chosen("durability", topic, self.topic_rules, self.durability)
        return durability

    def retention_of(self, topic: str) -> Retention:
        """How long a topic keeps what is finished, unless something else was said while the broker ran."""
        time = chosen("retention_time", topic, self.topic_rules, self.retention_time)
        return Retention(time, chosen("retention_bytes", topic, self.topic_rules, self.retention_bytes))

    def channel_start_of(self, topic: str) -> str:
        """Where a new channel of a topic starts, unless who makes it says."""
        start: str = chosen("channel_start", topic, self.topic_rules, self.channel_start)
        return start

    @property
    def authorizer(self) -> str:
        """--auth with what stands for it: `http` when there is only --auth-http-address. Empty for none."""
        return self.auth or ("http" if self.auth_http_address else "")

    @property
    def http_is_open(self) -> bool:
        """Whether HTTP needs no credential."""
        return not self.authorizer or self.http_auth == "off" or (self.http_auth == "auto" and not self.auth)

    def __attrs_post_init__(self) -> None:
        # nsqd: asking for client certificates at all, in whatever words, requires TLS.
        if self.tls_client_auth_policy and self.tls_required == TLS_REQUIRED["false"]:
            self.tls_required = TLS_REQUIRED["true"]


def _table() -> tuple[Option, ...]:
    return tuple(
        Option(
            name=field.name,
            flag=field.name.replace("_", "-"),
            variable=VARIABLE_PREFIX + field.name.upper(),
            key=field.metadata["key"] or field.name,
            field=field.metadata["field"],
            kind=field.metadata["kind"],
            help=field.metadata["help"],
            limit=field.metadata["limit"],
            default=field.metadata["default"],
            is_derived=isinstance(field.default, attrs.Factory),  # type: ignore[arg-type]
        )
        for field in attrs.fields(Options)
        if field.metadata
    )


TABLE = _table()
BY_FLAG = {option.flag: option for option in TABLE}
BY_KEY = {option.key: option for option in TABLE}
_CHECKS = sorted(
    ((option.limit, option) for option in TABLE if option.limit is not None), key=lambda check: check[0].step
)


def check(options: Options, steps: Container[int] = range(_OURS + 1)) -> None:
    """
    Raise OptionError, one line, for the first option a broker cannot run with, in nsqd's order; `steps` names the
    checks of nsqd specification 4.3 to be made.
    """
    for limit, option in _CHECKS:
        value = getattr(options, option.name)
        if limit.step not in steps or limit.allows(value):
            continue
        if not limit.only_with or getattr(options, limit.only_with):
            raise OptionError(limit.refusal(option.flag, value))


def config_value(options: Options, key: str) -> Any:
    """
    What GET /config/`key` answers: text as str, anything else to be sent as JSON; durations are whole
    nanoseconds (nsqd specification 3.9). KeyError when no option has this config key.
    """
    option = BY_KEY[key]
    return option.kind.config(getattr(options, option.name))

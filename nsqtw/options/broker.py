"""
The options of the broker: `Options`, the only declaration of each.

Flags, environment variables, config keys, defaults, bounds, help, pages of documentation and what GET /config
answers all come from this table. Names, defaults and meanings are nsqd's; the last
group is ours. Durations are seconds, as floats.

The first options are in `broker_address` and `broker_limits`; a class has those of the one before it and its own, so
the order of all is that of --help.

`nsqtw.options.fields` says what an option is, `nsqtw.options.command_line` reads the options of a start,
`nsqtw.options.help` shows the table to people, single values are read by `nsqtw.options.types`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import attrs

from nsqtw.gocompat.values import quoted, shown
from nsqtw.options.addresses import is_host_port
from nsqtw.options.broker_address import not_an_address
from nsqtw.options.broker_limits import LimitOptions
from nsqtw.options.channels import ChannelRule, channel_tables
from nsqtw.options.fields import (
    ABOVE_ZERO,
    EVERY_STEP,
    NOT_NEGATIVE,
    OURS_ABOVE_ZERO,
    OURS_NOT_NEGATIVE,
    Limit,
    OptionTable,
    live,
    option,
    while_set,
)
from nsqtw.options.matching import Tables
from nsqtw.options.resolution import NOTHING_GIVEN, Resolution
from nsqtw.options.settings import ChannelPolicy, TopicPolicy
from nsqtw.options.topics import DURABILITIES, LATEST, STARTS, Retention, TopicRule, chosen, topic_tables
from nsqtw.options.types import (
    AUTHORIZER,
    BOOLEAN,
    CLIENT_AUTH_POLICIES,
    DURATION,
    FRACTIONS,
    INTEGER,
    NAMES,
    SIZE,
    TEXT,
    TEXTS,
    TLS_MIN,
    TLS_REQUIRED,
    TLS_REQUIREMENT,
    TLS_VERSION,
    TLS_VERSIONS,
    choice,
    did_you_mean,
)

CHECKS_BEFORE_TLS = range(3, 5)
CHECKS_AFTER_TLS = range(8, 20)

NSQ_COMPAT: dict[str, Any] = {
    "durability": "memory",
    "keep_deferred": False,
    "tls_min_version": TLS_VERSIONS["tls1.0"],
}
"""The defaults of --nsq-compat. An option that was given keeps its value."""


def _policy_complaint(value: str) -> str:
    return f"unknown policy {quoted(value)}{did_you_mean(value.lower(), CLIENT_AUTH_POLICIES)}"


def _experiment_complaint(values: tuple[str, ...]) -> str:
    unknown = next(value for value in values if value not in ("", EXPERIMENT))
    return f"unknown experiment {quoted(unknown)}"


EXPERIMENT = "topology-aware-consumption"


def _is_percentile(value: float) -> bool:
    return 0 < value <= 1


def _percentile_complaint(values: tuple[float, ...]) -> str:
    wrong = next(value for value in values if not _is_percentile(value))
    return f"invalid E2E processing latency percentile: {shown(wrong)}"


@attrs.define(kw_only=True)
class Options(LimitOptions):
    """
    The options of one broker; without arguments, nsqd's defaults.

    Values that were read are taken as they are: `check` says whether a broker can run with them. A running
    broker changes some of them (`log_level`, `lookupd_tcp_address`, the broadcast ports once they are known).
    """

    # Statistics
    statsd_address: str = option(
        TEXT,
        "",
        "address of a statsd, over UDP; empty for none",
        limit=Limit(
            "host:port", lambda value: not value or is_host_port(value), complaint=not_an_address, is_ours=True
        ),
    )
    statsd_prefix: str = option(TEXT, "nsq.%s", "prefix of statsd keys, %s standing for the host")
    statsd_interval: float = option(
        DURATION,
        60.0,
        "time between pushes to statsd",
        limit=Limit("at least 1s", lambda value: value >= 1, only_with="statsd_address"),
    )
    statsd_mem_stats: bool = option(BOOLEAN, True, "push statistics of memory and garbage collection too", reload=live)
    statsd_udp_packet_size: int = option(
        SIZE,
        508,
        "bytes of the largest packet to statsd",
        limit=Limit("1 to 65507", lambda value: 1 <= value <= 65507, is_ours=True),
        reload=live,
    )
    statsd_exclude_ephemeral: bool = option(BOOLEAN, False, "leave ephemeral topics and channels out", reload=live)
    e2e_processing_latency_window_time: float = option(
        DURATION,
        600.0,
        "time that end-to-end latencies are computed over",
        limit=attrs.evolve(ABOVE_ZERO, only_with="e2e_processing_latency_percentile"),
    )
    e2e_processing_latency_percentile: tuple[float, ...] = option(
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

    metrics_topics: bool = option(BOOLEAN, True, "show series of each topic at /metrics")
    metrics_channels: bool = option(BOOLEAN, True, "show series of each channel at /metrics, with --metrics-topics")
    metrics_max_series: int = option(
        INTEGER,
        100_000,
        "series of topics and channels that one scrape of /metrics may have; 0 for any number",
        limit=OURS_NOT_NEGATIVE,
        reload=live,
    )

    # TLS and compression
    tls_cert: str = option(TEXT, "", "certificate file (PEM)", reload=while_set)
    tls_key: str = option(TEXT, "", "key file (PEM)", reload=while_set)
    tls_client_auth_policy: str = option(
        TEXT,
        "",
        "client certificates: require any, or require-verify, one that --tls-root-ca-file has signed; empty for none",
        limit=Limit(
            "require or require-verify",
            CLIENT_AUTH_POLICIES.__contains__,
            step=4,
            complaint=_policy_complaint,
            is_ours=True,
        ),
    )
    tls_root_ca_file: str = option(
        TEXT, "", "certificate authorities for client certificates and auth servers (PEM)", reload=live
    )
    tls_required: int = option(
        TLS_REQUIREMENT,
        TLS_REQUIRED["false"],
        "clients must use TLS: false, true, or tcp-https for all but HTTP",
    )
    tls_min_version: int = option(
        TLS_VERSION,
        TLS_VERSIONS[TLS_MIN],
        "lowest version of TLS: tls1.0, tls1.1, tls1.2 or tls1.3",
        reload=live,
    )
    deflate: bool = option(BOOLEAN, True, "allow deflate compression", field="DeflateEnabled", reload=live)
    max_deflate_level: int = option(
        INTEGER,
        6,
        "highest deflate level a client may ask for",
        limit=Limit("[1,9]", lambda value: 1 <= value <= 9, step=3),
        reload=live,
    )
    snappy: bool = option(BOOLEAN, True, "allow snappy compression", field="SnappyEnabled", reload=live)

    enable_experiment: tuple[str, ...] = option(
        TEXTS,
        (),
        "experiment to turn on; may be repeated",
        field="Experiments",
        limit=Limit(
            EXPERIMENT,
            lambda values: all(value in ("", EXPERIMENT) for value in values),
            complaint=_experiment_complaint,
            is_ours=True,
        ),
    )

    # Ours
    protocol: tuple[str, ...] = option(
        NAMES,
        ("V2",),
        "protocols that TCP clients may speak, of those that --help-protocol names; may be repeated or comma-separated",
        key="protocols",
        limit=Limit("at least one name", bool),
    )
    backend: str = option(TEXT, "disk", "how messages are stored: NAME or NAME:ARGUMENT; see --help-backend")
    replicate: str = option(
        AUTHORIZER,
        "",
        "replica store for a copy of all durable data, from which another broker takes over: NAME:ARGUMENT, as in "
        "postgres:FILE; empty for none",
    )
    replicate_timeout: float = option(
        DURATION,
        5.0,
        "longest time that a commit waits for the replica store",
        limit=attrs.evolve(ABOVE_ZERO, only_with="replicate"),
    )
    replicate_lease: float = option(
        DURATION,
        3.0,
        "time without the replica store after which this broker pauses and another one may take over",
        limit=Limit("at least 1s", lambda value: value >= 1, only_with="replicate"),
    )
    replicate_from: str = option(
        choice("none", "local", "store"),
        "none",
        "which side replaces the other when the data path has something that the replica store has lost: the data path "
        "(local), the store, or none, which refuses to start",
    )
    durability: str = option(
        choice(*DURABILITIES),
        "os",
        "what OK means: the operating system has the message (os), it is on stable storage (fsync), or, nsqd's way, "
        "it may wait a second (memory)",
        reload=live,
    )
    retention_time: float = option(
        DURATION,
        0.0,
        "time that a topic keeps finished messages, for channels that are moved back and readers of its log; "
        "0 for no limit by time, and with --retention-bytes 0 too, not at all",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    retention_bytes: int = option(
        SIZE,
        0,
        "bytes of finished messages that a topic keeps; 0 for no limit by size",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    channel_start: str = option(
        choice(*STARTS),
        LATEST,
        "where a new channel starts: at messages that no channel has got (latest), or at the oldest kept (earliest)",
        reload=live,
    )
    keep_deferred: bool = option(
        BOOLEAN, True, "deferred messages keep their time over a restart, and where nsqd would spill them to disk"
    )
    max_defer_timeout: float = option(
        DURATION,
        0.0,
        "longest delay of DPUB and of /pub?defer=, which may be days (240h); 0 for --max-req-timeout",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    trace_headers: bool = option(
        BOOLEAN, False, "keep traceparent and tracestate of HTTP publishes as headers of their messages"
    )
    http_subscribe: bool = option(BOOLEAN, False, "let HTTP clients consume, under /v2/subscribe", reload=live)
    max_http_subscribers: int = option(
        INTEGER,
        1000,
        "polls that wait, streams of messages and WebSockets at the same time, with --http-subscribe",
        limit=OURS_ABOVE_ZERO,
        reload=live,
    )
    requeue_on_disconnect: bool = option(
        BOOLEAN,
        False,
        "requeue the messages in flight of a consumer at once when its connection ends",
        reload=live,
    )
    nsq_compat: bool = option(
        BOOLEAN,
        False,
        "be as lenient as nsqd: ignore unknown config keys and stray words, take any value it takes, and have its "
        "defaults of " + ", ".join(f"--{n.replace('_', '-')}" for n in NSQ_COMPAT),
    )
    log_format: str = option(choice("text", "json"), "text", "log lines as text, nsqd's way, or as JSON objects")

    auth: str = option(
        AUTHORIZER, "", "authorizer: NAME or NAME:ARGUMENT, see --help-auth; empty disables authorization"
    )
    http_auth: str = option(
        choice("auto", "on", "off"),
        "auto",
        "whether HTTP needs a credential as TCP does: on, off, or auto, which is on with --auth, and off, nsqd's way, "
        "with no more than --auth-http-address",
    )

    topic_rules: tuple[TopicRule, ...] = ()
    """No option: what the file says of some topics, `[topic."orders.*"]`."""
    channel_rules: tuple[ChannelRule, ...] = ()
    """No option: what the file says of some channels, `[channel."orders.*/archive"]`."""
    _topic_tables: Tables[TopicRule, TopicPolicy] = attrs.field(init=False, eq=False, repr=False)
    _channel_tables: Tables[ChannelRule, ChannelPolicy] = attrs.field(init=False, eq=False, repr=False)

    @property
    def longest_delay(self) -> float:
        """The maximum delay of a published message in seconds."""
        return self.max_defer_timeout or self.max_req_timeout

    def durability_of(self, topic: str) -> str:
        """The durability class of a topic, unless it was given another one while the broker ran."""
        durability: str = chosen("durability", self._tables_of_topics().matching(topic), self.durability)
        return durability

    def retention_of(self, topic: str) -> Retention:
        """Return how long a topic keeps what is finished, unless something else was said while the broker ran."""
        rules = self._tables_of_topics().matching(topic)
        time = chosen("retention_time", rules, self.retention_time)
        return Retention(time, chosen("retention_bytes", rules, self.retention_bytes))

    def channel_start_of(self, topic: str) -> str:
        """Return where a new channel of a topic starts, unless its creator says otherwise."""
        start: str = chosen("channel_start", self._tables_of_topics().matching(topic), self.channel_start)
        return start

    def topic_policy_of(self, topic: str, given: Mapping[str, Any] = NOTHING_GIVEN) -> TopicPolicy:
        """Return the policy of a topic; `given` are the settings that were made while a broker ran. InvalidPolicy."""
        return self.resolve_topic(topic, given).policy

    def channel_policy_of(self, topic: str, channel: str, given: Mapping[str, Any] = NOTHING_GIVEN) -> ChannelPolicy:
        """Return the policy of a channel; `given` are the settings that were made while a broker ran. InvalidPolicy."""
        return self.resolve_channel(topic, channel, given).policy

    def resolve_topic(self, topic: str, given: Mapping[str, Any]) -> Resolution[TopicPolicy]:
        """Return the policy of a topic, and where each of its settings comes from. InvalidPolicy."""
        return self._tables_of_topics().resolve(given, topic)

    def resolve_channel(self, topic: str, channel: str, given: Mapping[str, Any]) -> Resolution[ChannelPolicy]:
        """Return the policy of a channel, and where each of its settings comes from. InvalidPolicy."""
        return self._tables_of_channels().resolve(given, topic, channel)

    @property
    def authorizer(self) -> str:
        """--auth with what stands for it: `http` when there is only --auth-http-address. Empty for none."""
        return self.auth or ("http" if self.auth_http_address else "")

    @property
    def http_is_open(self) -> bool:
        """Whether HTTP needs no credential."""
        return not self.authorizer or self.http_auth == "off" or (self.http_auth == "auto" and not self.auth)

    def _tables_of_topics(self) -> Tables[TopicRule, TopicPolicy]:
        if self._topic_tables.rules is not self.topic_rules:
            self._topic_tables = topic_tables(self.topic_rules)
        return self._topic_tables

    def _tables_of_channels(self) -> Tables[ChannelRule, ChannelPolicy]:
        if self._channel_tables.rules is not self.channel_rules:
            self._channel_tables = channel_tables(self.channel_rules)
        return self._channel_tables

    def __attrs_post_init__(self) -> None:
        self._topic_tables, self._channel_tables = topic_tables(()), channel_tables(())
        # nsqd: asking for client certificates at all, with any value, requires TLS.
        if self.tls_client_auth_policy and self.tls_required == TLS_REQUIRED["false"]:
            self.tls_required = TLS_REQUIRED["true"]


NSQD = OptionTable("nsqd", Options, has_rules=True, presets={"nsq_compat": NSQ_COMPAT})
TABLE = tuple(NSQD)
BY_FLAG, BY_KEY = NSQD.by_flag, NSQD.by_key


def check(options: Options, steps: Container[int] = EVERY_STEP) -> None:
    """
    Raise OptionError, one line, for the first option a broker cannot run with, in nsqd's order; `steps` has the
    numbers of nsqd's checks that are made.
    """
    NSQD.check(options, steps)


def config_value(options: Options, key: str) -> Any:
    """
    Return the response to GET /config/`key`: text as str, anything else to be sent as JSON; durations are whole
    nanoseconds. KeyError when no option has this config key.
    """
    option = BY_KEY[key]
    return option.kind.config(getattr(options, option.name))

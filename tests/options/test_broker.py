"""The table of options: nsqd's names and defaults, what /config says, what a broker refuses to run with."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from nsqtw.errors import OptionError
from nsqtw.options.admin import NSQADMIN
from nsqtw.options.broker import (
    BY_FLAG,
    BY_KEY,
    CHECKS_AFTER_TLS,
    CHECKS_BEFORE_TLS,
    NSQD,
    TABLE,
    Options,
    check,
    config_value,
)
from nsqtw.options.broker_address import hostname
from nsqtw.options.command_line import read_command_line, resolve
from nsqtw.options.lookupd import NSQLOOKUPD
from nsqtw.options.types import DURATION, INTEGER, SIZE

# flag, default as nsqd documents it, but for TLS: 1.2 and not 1.0; the config key where it is not the flag with
# underscores
NSQDS = """
log-level info
log-prefix [nsqd]\x20
tcp-address 0.0.0.0:4150
http-address 0.0.0.0:4151
https-address 0.0.0.0:4152
broadcast-tcp-port 0
broadcast-http-port 0
auth-http-request-method get
http-client-connect-timeout 2s
http-client-request-timeout 5s
topology-region
topology-zone
data-path
mem-queue-size 10000
max-bytes-per-file 104857600
sync-every 2500
sync-timeout 2s
queue-scan-selection-count 20
queue-scan-worker-pool-max 4
msg-timeout 60s
max-msg-timeout 15m
max-msg-size 1048576
max-body-size 5242880
max-req-timeout 1h
max-heartbeat-interval 60s
max-rdy-count 2500
max-output-buffer-size 65536
max-output-buffer-timeout 30s
min-output-buffer-timeout 25ms
output-buffer-timeout 250ms
max-channel-consumers 0
statsd-address
statsd-prefix nsq.%s
statsd-interval 60s
statsd-mem-stats true
statsd-udp-packet-size 508
statsd-exclude-ephemeral false
e2e-processing-latency-window-time 10m
tls-cert
tls-key
tls-client-auth-policy
tls-root-ca-file
tls-required false
tls-min-version tls1.2
deflate true
max-deflate-level 6
snappy true
"""
LISTS = {
    "lookupd-tcp-address": "nsqlookupd_tcp_addresses",
    "auth-http-address": "auth_http_addresses",
    "e2e-processing-latency-percentile": "e2e_processing_latency_percentiles",
    "enable-experiment": "enable_experiment",
}
DEFAULTS = dict((line + " ").split(" ", 1) for line in NSQDS.strip("\n").split("\n"))


@pytest.mark.parametrize("flag", DEFAULTS)
def test_every_flag_of_nsqd_has_its_default_and_its_config_key(flag: str) -> None:
    option = BY_FLAG[flag]
    text = DEFAULTS[flag].removesuffix(" ")
    assert option.kind.parse(text) == getattr(Options(), option.name)
    assert option.key == flag.replace("-", "_")


def test_lists_are_empty_and_have_keys_in_the_plural() -> None:
    for flag, key in LISTS.items():
        assert getattr(Options(), BY_FLAG[flag].name) == ()
        assert BY_FLAG[flag].key == key


def test_nothing_but_the_table_of_nsqd_and_our_own_is_there() -> None:
    machine = {"node-id", "broadcast-address"}
    ours = {
        "backend",
        "durability",
        "keep-deferred",
        "trace-headers",
        "max-defer-timeout",
        "requeue-on-disconnect",
        "http-subscribe",
        "max-http-subscribers",
        "protocol",
        "nsq-compat",
        "log-format",
        "retention-time",
        "retention-bytes",
        "channel-start",
    }
    ours |= {
        "allowed-host",
        "auth",
        "http-auth",
        "sigterm",
        "drain-timeout",
        "metrics-topics",
        "metrics-channels",
        "metrics-max-series",
    }
    ours |= {"lookupd-tls", "lookupd-tls-root-ca-file", "lookupd-tls-cert", "lookupd-tls-key", "lookupd-secret-file"}
    ours |= {"replicate", "replicate-timeout", "replicate-lease", "replicate-from"}
    limits = {
        "max-topics",
        "max-channels",
        "max-connections",
        "max-connections-per-address",
        "max-unfinished-size",
        "max-idle-commands",
        "magic-timeout",
        "http-header-timeout",
        "http-idle-timeout",
        "body-timeout",
        "min-body-rate",
        "write-timeout",
        "stop-timeout",
    }
    assert set(BY_FLAG) == {*DEFAULTS, *LISTS, *machine, *ours, *limits}


def test_the_node_id_comes_from_the_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.options.broker_address.hostname", lambda: "vm")
    assert Options().node_id == 617
    assert BY_FLAG["node-id"].key == "id"


def test_the_broadcast_address_is_the_host_name() -> None:
    assert Options().broadcast_address == hostname()


def _example(option: Any) -> str:
    """A value other than the default, as a flag takes it."""
    special = {
        "log_level": "debug",
        "tls_required": "tcp-https",
        "tls_min_version": "tls1.3",
        "durability": "memory",
        "channel_start": "earliest",
        "log_format": "json",
        "http_auth": "off",
        "sigterm": "drain",
        "replicate_from": "store",
    }
    by_word = {
        "string": "x",
        "int": "5",
        "size": "5",
        "duration": "7m",
        "list": "a:1",
        "list of numbers": "0.5",
        "bool": "x",
    }
    if option.kind.word == "bool":
        return "false" if option.default == "true" else "true"
    return special.get(option.name) or by_word[option.kind.word]


@pytest.mark.parametrize("option", TABLE, ids=lambda option: option.flag)
def test_every_option_can_be_set_by_flag_by_variable_and_by_file(option: Any, tmp_path: Path) -> None:
    text = _example(option)
    wanted = option.kind.parse(text)
    assert wanted != getattr(Options(), option.name)
    config = tmp_path / "nsqd.cfg"
    config.write_text(f"{option.key} = {text if option.kind.word in ('int', 'size') else repr(text)}\n")
    for found in (
        resolve(read_command_line([f"--{option.flag}={text}"])),
        resolve(read_command_line([]), {f"NSQTW_{option.flag.replace('-', '_').upper()}": text}),
        resolve(read_command_line(["--config", str(config)])),
    ):
        assert wanted == getattr(found.options, option.name)
        assert found.warnings == []


LISTEN = "must be host:port, or the path of a unix socket, which has a /"
PERCENTILE = "invalid E2E processing latency percentile"
ALLOWED = "--e2e-processing-latency-percentile must be above 0 and at most 1"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"max_deflate_level": 0}, "--max-deflate-level must be [1,9]"),
        ({"max_deflate_level": 10}, "--max-deflate-level must be [1,9]"),
        (
            {"broadcast_address": "a b"},
            "--broadcast-address must be a host name or an IP address, without a port, or empty",
        ),
        (
            {"broadcast_address": "h:4150"},
            "--broadcast-address must be a host name or an IP address, without a port, or empty",
        ),
        ({"node_id": -1}, "--node-id must be [0,1024)"),
        ({"node_id": 1024}, "--node-id must be [0,1024)"),
        ({"auth_http_request_method": "POST"}, "--auth-http-request-method must be post or get"),
        ({"e2e_processing_latency_percentile": (2.0,)}, f"{PERCENTILE}: 2; {ALLOWED}"),
        ({"e2e_processing_latency_percentile": (0.5, 0.0)}, f"{PERCENTILE}: 0; {ALLOWED}"),
        ({"e2e_processing_latency_percentile": (1.5, 0.5)}, f"{PERCENTILE}: 1.5; {ALLOWED}"),
        ({"e2e_processing_latency_percentile": (math.nan,)}, f"{PERCENTILE}: NaN; {ALLOWED}"),
        ({"e2e_processing_latency_percentile": (math.inf,)}, f"{PERCENTILE}: +Inf; {ALLOWED}"),
        ({"mem_queue_size": -1}, "--mem-queue-size must be 0 or more"),
        ({"queue_scan_selection_count": -1}, "--queue-scan-selection-count must be 0 or more"),
        ({"tcp_address": ""}, f'"" has no port; --tcp-address {LISTEN}'),
        ({"tcp_address": "127.0.0.1"}, f'"127.0.0.1" has no port; --tcp-address {LISTEN}'),
        ({"tcp_address": "nsqd.sock"}, f'"nsqd.sock" has no port; --tcp-address {LISTEN}'),
        ({"http_address": "localhost"}, f'"localhost" has no port; --http-address {LISTEN}, or empty'),
        ({"https_address": "::1"}, f'"::1" is no address; --https-address {LISTEN}, or empty'),
        ({"msg_timeout": -5.0}, "--msg-timeout must be greater than 0"),
        ({"max_msg_timeout": 0.0}, "--max-msg-timeout must be greater than 0"),
        ({"max_msg_size": -1}, "--max-msg-size must be greater than 0"),
        ({"max_body_size": -1}, "--max-body-size must be greater than 0 and at least --max-msg-size"),
        (
            {"max_body_size": 99, "max_msg_size": 100},
            "--max-body-size must be greater than 0 and at least --max-msg-size",
        ),
        ({"max_channel_consumers": -1}, "--max-channel-consumers must be 0 or more"),
        ({"broadcast_tcp_port": 65536}, "--broadcast-tcp-port must be 0 to 65535"),
        ({"statsd_udp_packet_size": 0}, "--statsd-udp-packet-size must be 1 to 65507"),
        ({"statsd_address": "foo"}, '"foo" has no port; --statsd-address must be host:port'),
        ({"statsd_address": "foo:bar"}, '"foo:bar" is no address; --statsd-address must be host:port'),
        (
            {"lookupd_tcp_address": ("a:1", "b")},
            '"b" has no port; --lookupd-tcp-address must be host:port, dns://host:port or dns+srv://name',
        ),
        (
            {"tls_client_auth_policy": "required"},
            "unknown policy \"required\", did you mean 'require'?; --tls-client-auth-policy must be require or"
            " require-verify",
        ),
        (
            {"enable_experiment": ("topology",)},
            'unknown experiment "topology"; --enable-experiment must be topology-aware-consumption',
        ),
        ({"protocol": ()}, "--protocol must be at least one name"),
        (
            {"e2e_processing_latency_window_time": 0.0, "e2e_processing_latency_percentile": (0.5,)},
            "--e2e-processing-latency-window-time must be greater than 0",
        ),
        ({"sync_timeout": 0.0}, "--sync-timeout must be greater than 0"),
        ({"output_buffer_timeout": 0.0}, "--output-buffer-timeout must be greater than 0"),
        ({"statsd_interval": 0.999, "statsd_address": "a:1"}, "--statsd-interval must be at least 1s"),
    ],
)
def test_what_a_broker_cannot_run_with_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as refused:
        check(Options(**given))
    assert re.fullmatch(rf"{re.escape(text)}(, not .+)?", str(refused.value))
    (shown,) = (option.kind.show(given[option.name]) for option in NSQD if option.name == next(iter(given)))
    assert any(part in str(refused.value) for part in shown.split(",")), "the wrong value is named"


def test_a_number_has_a_bound_and_it_is_in_the_table() -> None:
    for table in (NSQD, NSQLOOKUPD, NSQADMIN):
        for option in table:
            if option.kind in (INTEGER, SIZE, DURATION):
                assert option.limit is not None, option.flag


def test_what_nsqd_takes_is_taken_with_its_leniency() -> None:
    lenient: dict[str, Any] = {
        "msg_timeout": -5.0,
        "max_msg_size": -1,
        "max_body_size": -2,
        "statsd_address": "foo",
        "lookupd_tcp_address": ("a",),
        "tls_client_auth_policy": "required",
        "enable_experiment": ("x",),
        "max_channel_consumers": -1,
    }
    check(Options(nsq_compat=True, **lenient))
    for name, value in lenient.items():
        with pytest.raises(OptionError):
            check(Options(**{name: value}))
    with pytest.raises(OptionError, match="--sync-timeout"):
        check(Options(nsq_compat=True, sync_timeout=0.0))


def test_addresses_that_can_be_used() -> None:
    check(Options(tcp_address="/run/nsqd.sock", http_address="./nsqd:http", https_address=":0"))
    check(
        Options(lookupd_tcp_address=("a:1", "[::1]:4160", "dns://a:4160", "dns+srv://_n._tcp.a"), statsd_address=":1")
    )


def test_bounds_are_inclusive_where_nsqds_are() -> None:
    check(Options())
    check(Options(node_id=0, max_deflate_level=1, mem_queue_size=0, statsd_interval=1.0, statsd_address="a:1"))
    check(Options(node_id=1023, max_deflate_level=9, e2e_processing_latency_percentile=(1.0, 0.001)))


def test_what_is_not_used_may_be_anything() -> None:
    check(Options(statsd_interval=0.0, e2e_processing_latency_window_time=0.0, http_address="", https_address=""))


def test_the_checks_have_nsqds_order_and_ours_come_last() -> None:
    wrong: dict[str, Any] = {
        "max_deflate_level": 0,
        "node_id": -1,
        "auth_http_request_method": "x",
        "e2e_processing_latency_percentile": (2.0,),
        "sync_timeout": 0.0,
    }
    for steps in (CHECKS_BEFORE_TLS, CHECKS_AFTER_TLS):
        with pytest.raises(OptionError) as refused:
            check(Options(**wrong), steps)
        expected = {
            CHECKS_BEFORE_TLS: ["--max-deflate-level must be [1,9], not 0", "--node-id must be [0,1024), not -1"],
            CHECKS_AFTER_TLS: [
                "--auth-http-request-method must be post or get, not x",
                f"{PERCENTILE}: 2; {ALLOWED}",
                "--sync-timeout must be greater than 0, not 0s",
            ],
        }
        assert str(refused.value) == "; ".join(expected[steps])


@pytest.mark.parametrize("policy", ["require", "require-verify", "anything"])
def test_asking_for_client_certificates_requires_tls(policy: str) -> None:
    assert Options(tls_client_auth_policy=policy).tls_required == 2
    assert Options(tls_client_auth_policy=policy, tls_required=1).tls_required == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("msg_timeout", 60_000_000_000),
        ("min_output_buffer_timeout", 25_000_000),
        ("max_rdy_count", 2500),
        ("log_level", 2),
        ("tls_required", 0),
        ("tls_min_version", 771),
        ("snappy", True),
        ("nsqlookupd_tcp_addresses", []),
        ("e2e_processing_latency_percentiles", []),
        ("auth_http_request_method", "get"),
        ("statsd_prefix", "nsq.%s"),
    ],
)
def test_config_says_durations_in_nanoseconds_and_words_as_numbers(key: str, value: object) -> None:
    answer = config_value(Options(), key)
    assert value == answer
    assert type(value) is type(answer)


def test_config_knows_keys_not_flags() -> None:
    assert config_value(Options(node_id=7), "id") == 7
    for name in ("node_id", "lookupd_tcp_address", "version", "config", "verbose", "nosuch"):
        assert name not in BY_KEY
        with pytest.raises(KeyError):
            config_value(Options(), name)

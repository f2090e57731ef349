"""Reading the command line and the config file."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.errors import OptionError
from nsqtw.option_sources import read_command_line, read_config, resolve, usage
from nsqtw.options import TABLE


@pytest.mark.parametrize(
    "words",
    [
        ["-msg-timeout", "5s"],
        ["--msg-timeout", "5s"],
        ["-msg-timeout=5s"],
        ["--msg-timeout=5s"],
        ["--msg-timeout=1s", "--msg-timeout=5s"],
    ],
)
def test_a_flag_has_one_dash_or_two_and_its_value_beside_or_behind_an_equals_sign(words: list[str]) -> None:
    assert read_command_line(words).given == {"msg_timeout": 5.0}


def test_a_value_may_look_like_a_flag_or_hold_equals_signs_or_be_empty() -> None:
    assert read_command_line(["--log-prefix", "--x"]).given == {"log_prefix": "--x"}
    assert read_command_line(["--log-prefix=a=b"]).given == {"log_prefix": "a=b"}
    assert read_command_line(["--http-address="]).given == {"http_address": ""}
    assert read_command_line(["--http-address", ""]).given == {"http_address": ""}


def test_booleans_take_a_value_only_behind_an_equals_sign() -> None:
    assert read_command_line(["--deflate=false"]).given == {"deflate": False}
    assert read_command_line(["--statsd-exclude-ephemeral", "--deflate=0"]).given == {
        "statsd_exclude_ephemeral": True,
        "deflate": False,
    }


def test_reading_stops_at_the_first_word_that_is_no_flag() -> None:
    line = read_command_line(["--deflate", "false", "--snappy=false"])
    assert line.given == {"deflate": True}
    assert line.unread == ("false", "--snappy=false")
    assert resolve(line)[1] == ["ignored, as every word after one that is no flag: false --snappy=false"]
    assert read_command_line(["--", "--nonsense"]).unread == ("--nonsense",)
    assert read_command_line(["-"]).unread == ("-",)


def test_a_list_is_built_by_repeating_its_flag() -> None:
    line = read_command_line(["--lookupd-tcp-address=a:1,b:2", "--lookupd-tcp-address", "c:3"])
    assert line.given == {"lookupd_tcp_address": ("a:1,b:2", "c:3")}
    line = read_command_line(["--e2e-processing-latency-percentile=0.5,1.0", "--e2e-processing-latency-percentile=0.9"])
    assert line.given == {"e2e_processing_latency_percentile": (1.0, 0.9, 0.5)}


def test_requiring_tls_needs_no_word() -> None:
    assert read_command_line(["--tls-required"]).given == {"tls_required": 2}
    assert read_command_line(["--tls-required=TCP-https"]).given == {"tls_required": 1}


def test_flags_that_are_no_options() -> None:
    line = read_command_line(["--version", "-h", "--help-backend", "--help-protocol", "--config=x"])
    assert (line.version, line.help, line.help_backend, line.help_protocol, line.config) == (True,) * 4 + ("x",)
    assert read_command_line(["-help"]).help
    deprecated = read_command_line(["--verbose", "-worker-id=true"])
    assert deprecated == read_command_line([])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--no-such-flag=1"], "flag provided but not defined: -no-such-flag"),
        (["--max-rdy-count=many"], 'invalid value "many" for flag -max-rdy-count: parse error'),
        (["--msg-timeout=60"], 'invalid value "60" for flag -msg-timeout: parse error'),
        (["--deflate=maybe"], 'invalid value "maybe" for flag -deflate: parse error'),
        (["--max-rdy-count"], "flag needs an argument: -max-rdy-count"),
        (["---x"], "bad flag syntax: ---x"),
        (["-=x"], "bad flag syntax: -=x"),
        (
            ["--log-level=loud"],
            'invalid value "loud" for flag -log-level: must be one of debug, info, warn, error, fatal',
        ),
        (["--durability=fsync"], 'invalid value "fsync" for flag -durability: must be one of memory, os'),
    ],
)
def test_a_wrong_flag_gets_one_clear_line(words: list[str], text: str) -> None:
    with pytest.raises(OptionError) as refused:
        read_command_line(words)
    assert text == str(refused.value)


def test_usage_names_every_flag_with_its_default() -> None:
    text = usage("nsqd")
    assert text.startswith("Usage of nsqd:\n")
    for option in TABLE:
        assert f"\n  --{option.flag}" in text
    assert "--msg-timeout duration\n" in text
    assert "(default 1m0s)" in text


def test_flag_over_file_over_default(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    config.write_text('max_rdy_count = 10\nmsg_timeout = "5s"\n')
    options, _ = resolve(read_command_line(["--config", str(config), "--msg-timeout=7s"]))
    assert (options.max_rdy_count, options.msg_timeout, options.max_msg_size) == (10, 7.0, 1048576)


def test_a_flag_replaces_a_list_of_the_file(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    config.write_text('nsqlookupd_tcp_addresses = ["a:1", "b:2"]\n')
    options, _ = resolve(read_command_line(["--config", str(config), "--lookupd-tcp-address=c:3"]))
    assert options.lookupd_tcp_address == ("c:3",)


def test_a_config_file_like_the_one_nsq_ships(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    config.write_text(
        """
## data and addresses
tcp_address = "127.0.0.1:0"
nsqlookupd_tcp_addresses = [
    "127.0.0.1:4160"
]
max_msg_size = 1024768
sync_timeout = "2s"
max_output_buffer_timeout = 1000
statsd_interval = "60s"
statsd_mem_stats = true
e2e_processing_latency_percentiles = [ 1.0, 0.99, 0.95 ]
tls_min_version = ""
log_level = "WARN"
"""
    )
    values, warnings = read_config(str(config))
    assert warnings == []
    assert values == {
        "tcp_address": "127.0.0.1:0",
        "lookupd_tcp_address": ("127.0.0.1:4160",),
        "max_msg_size": 1024768,
        "sync_timeout": 2.0,
        "max_output_buffer_timeout": 1.0,
        "statsd_interval": 60.0,
        "statsd_mem_stats": True,
        "e2e_processing_latency_percentile": (1.0, 0.99, 0.95),
        "tls_min_version": 769,
        "log_level": 3,
    }


def test_unknown_keys_and_inverted_booleans_are_pointed_out(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    config.write_text("max-rdy-counts = 1\ndeflate = 1\nxyzzy = 2\n[tables.too]\nx = 1\n")
    values, warnings = read_config(str(config))
    assert values == {"deflate": False}
    assert warnings == [
        f"config file {config}: unknown key 'max-rdy-counts', did you mean 'max_rdy_count'?",
        f"config file {config}: deflate = 1 means false, as in nsqd; write true or false",
        f"config file {config}: unknown key 'xyzzy'",
        f"config file {config}: unknown key 'tables'",
    ]


def test_a_config_value_that_does_not_fit_names_key_and_value(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    config.write_text("max_rdy_count = 1.5\n")
    with pytest.raises(OptionError) as refused:
        read_config(str(config))
    assert str(refused.value) == f"config file {config}: failed parsing max_rdy_count 1.5 - is no integer"


@pytest.mark.parametrize("content", [None, b"= nonsense", b"\xff\xfe"])
def test_a_config_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    config = tmp_path / "nsqd.cfg"
    if content is not None:
        config.write_bytes(content)
    with pytest.raises(OptionError, match=f"^failed to load config file {config} - .+"):
        read_config(str(config))

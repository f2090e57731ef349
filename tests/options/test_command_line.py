"""Reading the command line, and which source of options wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nsqtw.errors import FlagError, OptionError, UnfitValue
from nsqtw.options.broker import NSQ_COMPAT, Options
from nsqtw.options.command_line import NsqdCommandLine, read_command_line, resolve


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
    assert read_command_line(["--max-rdy-count", "-5"]).given == {"max_rdy_count": -5}
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
    with pytest.raises(FlagError) as refused:
        resolve(line)
    why = "unexpected word \"false\": write --deflate=false, a switch takes its value behind '='"
    assert str(refused.value) == why
    assert resolve(line, {"NSQTW_NSQ_COMPAT": "true"}).warnings == [
        f"ignored, with every word behind it, as nsqd does: {why}"
    ]
    assert read_command_line(["--", "--nonsense"]).unread == ("--nonsense",)
    assert read_command_line(["-"]).unread == ("-",)


def test_a_list_is_built_by_repeating_its_flag() -> None:
    line = read_command_line(["--lookupd-tcp-address=a:1,b:2", "--lookupd-tcp-address", "c:3"])
    assert line.given == {"lookupd_tcp_address": ("a:1,b:2", "c:3")}
    line = read_command_line(["--e2e-processing-latency-percentile=0.5,1.0", "--e2e-processing-latency-percentile=0.9"])
    assert line.given == {"e2e_processing_latency_percentile": (1.0, 0.9, 0.5)}


def test_an_empty_auth_server_is_one_too() -> None:
    """nsqd asks clients for AUTH then, and turns them all away: what protects a broker is not dropped unseen."""
    assert read_command_line(["--auth-http-address="]).given == {"auth_http_address": ("",)}


def test_requiring_tls_needs_no_word() -> None:
    assert read_command_line(["--tls-required"]).given == {"tls_required": 2}
    assert read_command_line(["--tls-required=TCP-https"]).given == {"tls_required": 1}


def test_flags_that_are_no_options() -> None:
    line = read_command_line(["--version", "--help-backend", "--help-protocol", "--print-config", "--config=x"])
    assert line == NsqdCommandLine(version=True, help_backend=True, help_protocol=True, print_config=True, config="x")
    assert read_command_line(["--verbose", "-worker-id=true"]).given == {}


@pytest.mark.parametrize("word", ["-h", "--h", "-help", "--help", "--help=false", "-h=1"])
def test_who_asks_for_help_gets_it_whatever_comes_behind(word: str) -> None:
    assert read_command_line(["--deflate", word, "--nonsense"]).help


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--no-such-flag=1"], "flag provided but not defined: -no-such-flag"),
        (["--no-such-flag", "-h"], "flag provided but not defined: -no-such-flag"),
        (["--max-rdy-count"], "flag needs an argument: -max-rdy-count"),
        (["---x"], "bad flag syntax: ---x"),
        (["-=x"], "bad flag syntax: -=x"),
        (["--="], "bad flag syntax: --="),
    ],
)
def test_a_flag_that_is_none_gets_nsqds_line(words: list[str], text: str) -> None:
    with pytest.raises(FlagError) as refused:
        read_command_line(words)
    assert text == str(refused.value)


@pytest.mark.parametrize(
    ("word", "nsqd", "ours"),
    [
        ("--max-rdy-count=many", 'invalid value "many" for flag -max-rdy-count: parse error', "a whole number"),
        ("--max-rdy-count=", 'invalid value "" for flag -max-rdy-count: parse error', "a whole number"),
        (
            "--node-id=9223372036854775808",
            'invalid value "9223372036854775808" for flag -node-id: value out of range',
            "a whole number",
        ),
        (
            "--msg-timeout=60",
            'invalid value "60" for flag -msg-timeout: parse error',
            "a number with a unit, such as 250ms or 1h30m",
        ),
        (
            "--msg-timeout=2562048h",
            'invalid value "2562048h" for flag -msg-timeout: parse error',
            "a number with a unit, such as 250ms or 1h30m",
        ),
        ("--deflate=maybe", 'invalid boolean value "maybe" for -deflate: parse error', "true or false"),
        ("--deflate=", 'invalid boolean value "" for -deflate: parse error', "true or false"),
        ("--version=maybe", 'invalid boolean value "maybe" for -version: parse error', "true or false"),
        ("--worker-id=5", 'invalid boolean value "5" for -worker-id: parse error', "true or false"),
        (
            "--tls-required=Maybe",
            'invalid boolean value "Maybe" for -tls-required: strconv.ParseBool: parsing "maybe": invalid syntax',
            "false, tcp-https or true",
        ),
        (
            "--tls-min-version=SSL3.0",
            'invalid value "SSL3.0" for flag -tls-min-version: unknown tlsVersionOption "ssl3.0"',
            "tls1.0, tls1.1, tls1.2 or tls1.3",
        ),
        (
            "--log-level=loud",
            "invalid value \"loud\" for flag -log-level: invalid log level 'loud' (debug, info, warn, error, fatal)",
            "debug, info, warn, error or fatal",
        ),
        ("--durability=disk", 'invalid value "disk" for flag -durability: parse error', "memory, os or fsync"),
        ('--sync-every=a"\n', r'invalid value "a\"\n" for flag -sync-every: parse error', "a whole number"),
    ],
)
def test_a_wrong_value_gets_nsqds_line_and_what_is_allowed(word: str, nsqd: str, ours: str) -> None:
    with pytest.raises(FlagError) as refused:
        read_command_line(["--nsq-compat", word])
    assert str(refused.value) == f"{nsqd}; must be {ours}"
    with pytest.raises(FlagError) as refused:
        read_command_line([word])
    flag = word.partition("=")[0]
    assert str(refused.value).startswith("invalid value ")
    assert f" for {flag}: " in str(refused.value)
    assert f"must be {ours}" in str(refused.value)
    for text in ("parse error", "strconv", "tlsVersionOption"):
        assert text not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--data-pth=x"], "flag provided but not defined: -data-pth, did you mean '--data-path'?"),
        (["--max_rdy_count=1"], "flag provided but not defined: -max_rdy_count, did you mean '--max-rdy-count'?"),
        (["--durability=fysnc"], 'invalid value "fysnc" for --durability: must be memory, os or fsync, did you mean'
         " 'fsync'?"),
        (["data-path=/x", "--auth=static:g"], "unexpected word \"data-path\": a flag begins with --, did you mean"
         " '--data-path'?"),
        (["--snappy", "false", "--auth=static:g"], "unexpected word \"false\": write --snappy=false, a switch takes its"
         " value behind '='"),
        (["--snappy=true", "false"], 'unexpected word "false": a flag begins with --'),
        (["--max-msg-size=1.3B"], 'invalid value "1.3B" for --max-msg-size: no whole number of bytes; must be a number'
         " of bytes, such as 1048576 or 1MB"),
    ],
)  # fmt: skip
def test_a_mistyped_command_line_is_refused_with_a_suggestion(words: list[str], text: str) -> None:
    with pytest.raises(FlagError) as refused:
        resolve(read_command_line(words))
    assert text == str(refused.value)


@pytest.mark.parametrize("words", [["--nsq-compat"], ["--nsq-compat=false", "-nsq-compat=t"]])
def test_nsqds_leniency_can_be_asked_for(words: list[str], tmp_path: Path) -> None:
    config = write(tmp_path, "tls_requierd = true\n")
    assert resolve(read_command_line([*words, "--config", config])).warnings == [
        f"ignored, as nsqd does: config file {config}: unknown key 'tls_requierd', did you mean 'tls_required'?"
    ]
    config = write(tmp_path, "tls_requierd = true\nnsq_compat = true\n")
    assert len(resolve(read_command_line(["--config", config, "stray"])).warnings) == 2
    with pytest.raises(FlagError):
        resolve(read_command_line(["--config", config, "--nsq-compat=false", "stray"]))


def test_an_unknown_key_of_the_config_file_is_refused(tmp_path: Path) -> None:
    config = write(tmp_path, 'auht = "static:g.toml"\n')
    with pytest.raises(OptionError) as refused:
        resolve(read_command_line(["--config", config]))
    assert str(refused.value) == f"config file {config}: unknown key 'auht', did you mean 'auth'?"


def test_a_percentile_that_is_no_number_is_no_wrong_flag_to_nsqd() -> None:
    with pytest.raises(UnfitValue) as refused:
        read_command_line(["--nsq-compat", "--e2e-processing-latency-percentile=0.5,x", "--no-such-flag"])
    assert str(refused.value) == (
        "Could not parse: x; --e2e-processing-latency-percentile must be numbers above 0 and at most 1, with a point,"
        " such as 0.99 or 1.0"
    )


def write(tmp_path: Path, content: str) -> str:
    """The path of a config file."""
    config = tmp_path / "nsqd.cfg"
    config.write_text(content)
    return str(config)


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    config = write(tmp_path, 'msg_timeout = "5s"\nmax_rdy_count = 10\nsync_every = 10\n')
    variables = {"NSQTW_MSG_TIMEOUT": "6s", "NSQTW_MAX_RDY_COUNT": "20"}
    found = resolve(read_command_line(["--config", config, "--msg-timeout=7s"]), variables)
    options = found.options
    assert (options.msg_timeout, options.max_rdy_count, options.sync_every) == (7.0, 20, 10)
    assert options.max_msg_size == Options().max_msg_size
    assert found.sources == {"msg_timeout": "flag", "max_rdy_count": "environment", "sync_every": "file"}


def test_a_list_of_one_source_replaces_that_of_another(tmp_path: Path) -> None:
    config = write(tmp_path, 'nsqlookupd_tcp_addresses = ["a:1", "b:2"]\n')
    line = read_command_line(["--config", config])
    assert resolve(line).options.lookupd_tcp_address == ("a:1", "b:2")
    variables = {"NSQTW_LOOKUPD_TCP_ADDRESS": "c:3"}
    assert resolve(line, variables).options.lookupd_tcp_address == ("c:3",)
    line = read_command_line(["--config", config, "--lookupd-tcp-address=d:4"])
    assert resolve(line, variables).options.lookupd_tcp_address == ("d:4",)


def test_what_a_flag_stands_over_is_not_looked_at(tmp_path: Path) -> None:
    config = write(tmp_path, "max_rdy_count = 'x'\ne2e_processing_latency_percentiles = [1]\n")
    words = ["--config", config, "--max-rdy-count=5", "--e2e-processing-latency-percentile=0.5"]
    assert resolve(read_command_line(words), {"NSQTW_MAX_RDY_COUNT": "y"}).options.max_rdy_count == 5


@pytest.mark.parametrize("key", ["log_level", "tls_required", "tls_min_version", "durability"])
def test_words_in_a_file_are_looked_at_whatever_stands_over_them(key: str, tmp_path: Path) -> None:
    config = write(tmp_path, f"{key} = 'x'\nmax_rdy_count = 'y'\n")
    default = {"log_level": "info", "tls_required": "false", "tls_min_version": "tls1.0", "durability": "os"}[key]
    with pytest.raises(OptionError, match=f"^failed parsing {key} x "):
        resolve(read_command_line(["--config", config, f"--{key.replace('_', '-')}={default}"]))


def test_a_variable_names_the_config_file_unless_a_flag_does(tmp_path: Path) -> None:
    variables = {"NSQTW_CONFIG": write(tmp_path, "max_rdy_count = 10")}
    assert resolve(read_command_line([]), variables).options.max_rdy_count == 10
    assert resolve(read_command_line(["--config="]), variables).options.max_rdy_count == 2500


COMPAT_VARIABLE = {"NSQTW_NSQ_COMPAT": "true"}


@pytest.mark.parametrize(
    ("words", "variables", "content"),
    [
        (["--nsq-compat"], {}, ""),
        ([], COMPAT_VARIABLE, ""),
        ([], {}, "nsq_compat = true"),
        (["--nsq-compat"], {"NSQTW_NSQ_COMPAT": "false"}, "nsq_compat = false"),
    ],
)
def test_being_like_nsqd_is_other_defaults_wherever_it_is_asked_for(
    words: list[str], variables: dict[str, str], content: str, tmp_path: Path
) -> None:
    found = resolve(read_command_line(["--config", write(tmp_path, content), *words]), variables)
    for name, value in NSQ_COMPAT.items():
        assert value != getattr(Options(), name)
        assert value == getattr(found.options, name)
        assert found.sources[name] == "--nsq-compat"


@pytest.mark.parametrize(
    ("words", "variables", "content"),
    [
        (["--durability=os"], COMPAT_VARIABLE, ""),
        (["--nsq-compat"], {"NSQTW_DURABILITY": "os"}, ""),
        (["--nsq-compat"], {}, "durability = 'os'"),
    ],
)
def test_what_was_given_stays_beside_being_like_nsqd(
    words: list[str], variables: dict[str, str], content: str, tmp_path: Path
) -> None:
    found = resolve(read_command_line(["--config", write(tmp_path, content), *words]), variables)
    assert found.options.durability == "os"
    assert found.options.keep_deferred is False


def test_being_like_nsqd_can_be_switched_off_again() -> None:
    assert resolve(read_command_line(["--nsq-compat=false"]), COMPAT_VARIABLE).options == Options()


@pytest.mark.parametrize("given", [{}, {"tls_required": "false"}])
def test_it_is_said_what_made_tls_required(given: dict[str, Any]) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    found = resolve(read_command_line(["--tls-client-auth-policy=require", *words]))
    assert found.options.tls_required == 2
    assert found.sources["tls_required"] == "--tls-client-auth-policy"

"""The config file: nsqd's ways of reading it, and writing one that says the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.errors import OptionError, UnfitValue
from nsqtw.options.broker import BY_KEY, TABLE, Options
from nsqtw.options.command_line import read_command_line, resolve
from nsqtw.options.fields import Option
from nsqtw.options.files import ConfigFile, config_text, read_file
from nsqtw.options.types import ADDRESSES, AUTHORIZER, DURATION, FRACTIONS, INTEGER, NAMES, SIZE, TEXT, TEXTS


def load(tmp_path: Path, content: str | bytes, *, is_compatible: bool = False) -> ConfigFile:
    config = tmp_path / "nsqd.cfg"
    config.write_bytes(content if isinstance(content, bytes) else content.encode())
    file = ConfigFile(str(config))
    file.is_compatible = is_compatible
    return file


def values(file: ConfigFile) -> dict[str, Any]:
    return {option.name: file.read(option) for option in TABLE if file.holds(option)}


def test_a_config_file_like_the_one_nsq_ships(tmp_path: Path) -> None:
    file = load(
        tmp_path,
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
e2e_processing_latency_percentiles = [ 1.0, 0.95, 0.99 ]
tls_min_version = ""
log_level = "WARN"
""",
    )
    assert file.warnings() == []
    assert values(file) == {
        "tcp_address": "127.0.0.1:0",
        "lookupd_tcp_address": ("127.0.0.1:4160",),
        "max_msg_size": 1024768,
        "sync_timeout": 2.0,
        "max_output_buffer_timeout": 1.0,
        "statsd_interval": 60.0,
        "statsd_mem_stats": True,
        "e2e_processing_latency_percentile": (1.0, 0.95, 0.99),
        "tls_min_version": 771,
        "log_level": 3,
    }


def test_a_file_may_have_a_byte_order_mark_and_line_ends_of_windows(tmp_path: Path) -> None:
    assert values(load(tmp_path, b"\xef\xbb\xbfid = 7\r\ndeflate = false\r\n")) == {"node_id": 7, "deflate": False}


def test_unknown_keys_and_inverted_booleans_are_pointed_out(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    file = load(tmp_path, "max-rdy-counts = 1\ndeflate = 1\nxyzzy = 2\nnode_id = 3\n[tables.too]\nx = 1\n")
    assert values(file) == {"deflate": False}
    assert file.warnings() == [
        f"config file {config}: deflate = 1 means false, as in nsqd; write true or false",
    ]
    assert [str(error) for error in file.mistakes()] == [
        f"config file {config}: unknown key 'max-rdy-counts', did you mean 'max_rdy_count'?; unknown key 'xyzzy';"
        " unknown key 'node_id', did you mean 'id'?; unknown table 'tables'; keys stand before the first table"
    ]


def test_a_misspelt_table_of_topics_is_told_the_right_name(tmp_path: Path) -> None:
    (error,) = load(tmp_path, '[topics."a*"]\ndurability = "fsync"\n').mistakes()
    assert str(error).endswith('unknown table [topics."a*"], did you mean [topic."a*"]?')


@pytest.mark.parametrize(
    ("content", "nsqd", "ours"),
    [
        (
            "max_rdy_count = 1.5",
            "value 1.5 (2500) for field MaxRdyCount - invalid int64 value type float64",
            "max_rdy_count must be a whole number",
        ),
        (
            "broadcast_tcp_port = 'x'",
            'value x (0) for field BroadcastTCPPort - strconv.ParseInt: parsing "x": invalid syntax',
            "broadcast_tcp_port must be a whole number",
        ),
        (
            "msg_timeout = '60'",
            'value 60 (1m0s) for field MsgTimeout - time: missing unit in duration "60"',
            "msg_timeout must be a number with a unit, such as 250ms or 1h30m",
        ),
        (
            "deflate = 1.5",
            "value 1.5 (true) for field DeflateEnabled - invalid bool value type float64",
            "deflate must be true or false",
        ),
        (
            "tcp_address = 5",
            "value 5 (0.0.0.0:4150) for field TCPAddress - invalid string value type int64",
            "tcp_address must be a text in quotes",
        ),
        (
            "nsqlookupd_tcp_addresses = ['a', 5]",
            "value [a 5] ([]) for field NSQLookupdTCPAddresses"
            " - interface conversion: interface {} is int64, not string",
            "nsqlookupd_tcp_addresses must be texts in quotes, in a list",
        ),
        (
            "e2e_processing_latency_percentiles = [0.5, 1]",
            "value [0.5 1] ([]) for field E2EProcessingLatencyPercentiles"
            " - interface conversion: interface {} is int64, not float64",
            "e2e_processing_latency_percentiles must be numbers above 0 and at most 1, with a point,"
            " such as 0.99 or 1.0",
        ),
        (
            "[tls_cert]\nb = 1\na = true",
            "value map[a:true b:1] () for field TLSCert - invalid string value type map[string]interface {}",
            "tls_cert must be a text in quotes",
        ),
    ],
)
def test_a_value_that_does_not_fit_gets_nsqds_line_and_what_is_allowed(
    content: str, nsqd: str, ours: str, tmp_path: Path
) -> None:
    with pytest.raises(UnfitValue) as refused:
        values(load(tmp_path, content, is_compatible=True))
    assert str(refused.value) == (f"ERROR: Resolve failed to coerce {nsqd} (config file {tmp_path}/nsqd.cfg: {ours})")
    with pytest.raises(OptionError) as plain:
        values(load(tmp_path, content))
    assert str(plain.value).startswith(f"config file {tmp_path}/nsqd.cfg: {ours}, not ")
    for word in ("strconv", "interface", "int64", "coerce", "unit in duration"):
        assert word not in str(plain.value)


@pytest.mark.parametrize(
    ("content", "nsqd", "words"),
    [
        ("log_level = 'loud'", "log_level loud", "debug, info, warn, error or fatal"),
        ("log_level = 2", "log_level 2", "debug, info, warn, error or fatal"),
        ("log_level = ['info']", "log_level [info]", "debug, info, warn, error or fatal"),
        ("tls_required = 'maybe'", "tls_required maybe", "false, tcp-https or true"),
        ("tls_required = ''", "tls_required ", "false, tcp-https or true"),
        ("tls_min_version = 'ssl3.0'", "tls_min_version ssl3.0", "tls1.0, tls1.1, tls1.2 or tls1.3"),
        ("tls_min_version = 1.2", "tls_min_version 1.2", "tls1.0, tls1.1, tls1.2 or tls1.3"),
        ("durability = 'disk'", "durability disk", "memory, os or fsync"),
    ],
)
def test_a_wrong_word_gets_nsqds_line_and_the_words_there_are(
    content: str, nsqd: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError) as refused:
        load(tmp_path, content)
    key = content.partition(" ")[0]
    expected = f"failed parsing {nsqd} (config file {tmp_path}/nsqd.cfg: {key} must be {words}"
    assert str(refused.value).partition(", did you mean")[0].removesuffix(")") == expected


def test_a_wrong_word_gets_the_one_that_may_have_been_meant(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"must be memory, os or fsync, did you mean 'fsync'\?\)$"):
        load(tmp_path, "durability = 'Fysnc'")


def test_nsqd_calls_its_options_by_other_names_when_it_cannot_read_them(tmp_path: Path) -> None:
    """Its field names, which its error texts have."""
    expected = {
        "id": "ID",
        "https_address": "HTTPSAddress",
        "auth_http_addresses": "AuthHTTPAddresses",
        "http_client_connect_timeout": "HTTPClientConnectTimeout",
        "mem_queue_size": "MemQueueSize",
        "statsd_udp_packet_size": "StatsdUDPPacketSize",
        "e2e_processing_latency_window_time": "E2EProcessingLatencyWindowTime",
        "tls_root_ca_file": "TLSRootCAFile",
        "snappy": "SnappyEnabled",
        "enable_experiment": "Experiments",
    }
    for key, field in expected.items():
        with pytest.raises(UnfitValue, match=f" for field {field} - "):
            load(tmp_path, f"{key} = 1979-05-27", is_compatible=True).read(BY_KEY[key])


@pytest.mark.parametrize(
    "content",
    [b"= nonsense", b"\xff\xfe", b"a = 1\na = 2", b"a = 'x", pytest.param(b"a = " + b"[" * 100_000, id="deep")],
)
def test_a_file_that_is_no_toml_is_named(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"^failed to load config file {tmp_path}/nsqd.cfg - toml: .+"):
        load(tmp_path, content)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as refused:
        ConfigFile(f"{tmp_path}/none")
    reason = f"open {tmp_path}/none: no such file or directory"
    assert str(refused.value) == f"failed to load config file {tmp_path}/none - {reason}"
    with pytest.raises(OptionError, match=f"^read {tmp_path}: is a directory$"):
        read_file(str(tmp_path))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_NANOSECONDS = st.integers(-(2**63), 2**63 - 1)


def _any_value(option: Option) -> st.SearchStrategy[Any]:
    """Values that the option can have had from somewhere."""
    if option.kind.words:
        return st.sampled_from(option.kind.words).map(option.kind.parse)
    return {
        TEXT: _TEXTS,
        INTEGER: st.integers(-(2**63), 2**63 - 1),
        DURATION: _NANOSECONDS.map(lambda nanoseconds: nanoseconds / 1_000_000_000),
        SIZE: st.integers(-(2**63), 2**63 - 1),
        TEXTS: st.lists(_TEXTS).map(tuple),
        NAMES: st.lists(st.text("V123-", min_size=1)).map(tuple),
        ADDRESSES: st.lists(_TEXTS.filter(lambda text: not {"@", "?"} & set(text))).map(tuple),
        AUTHORIZER: st.sampled_from(["", "static:/a:b", "http:a:1,http://b/c", "mine"]),
        FRACTIONS: st.lists(st.floats(allow_nan=False)).map(tuple),
    }.get(option.kind, st.booleans())


@given(st.fixed_dictionaries({}, optional={option.name: _any_value(option) for option in TABLE}))
def test_the_file_that_is_printed_gives_the_same_options(given_values: dict[str, Any]) -> None:
    options = Options(**given_values)
    with tempfile.NamedTemporaryFile() as file:
        file.write(config_text(options, dict.fromkeys(given_values, "flag")).encode())
        file.flush()
        found = resolve(read_command_line(["--config", file.name]))
    assert options == found.options
    assert found.warnings == []
    assert set(found.sources) == {
        option.name for option in TABLE if option.name in given_values or not option.is_derived
    }


def test_what_each_machine_derives_for_itself_is_not_fixed_in_the_file() -> None:
    lines = config_text(Options(), {}).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("# ")][1:] == ["id", "broadcast_address"]
    assert f"id = {Options().node_id}  # flag" in config_text(Options(), {"node_id": "flag"}).splitlines()


def test_the_file_that_is_printed_says_where_each_value_came_from(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    config.write_text("max_rdy_count = 5")
    line = read_command_line(["--config", str(config), "--nsq-compat", '--log-prefix=a"b\\\n\x7f'])
    found = resolve(line, {"NSQTW_MSG_TIMEOUT": "90s"})
    printed = config_text(found.options, found.sources).splitlines()
    assert len(printed) == len(TABLE) + 1
    assert {
        "max_rdy_count = 5  # file",
        'msg_timeout = "1m30s"  # environment',
        "nsq_compat = true  # flag",
        'durability = "memory"  # --nsq-compat',
        "sync_every = 2500  # default",
        r'log_prefix = "a\"b\\\n\u007f"  # flag',
        "nsqlookupd_tcp_addresses = []  # default",
    } <= set(printed)


def test_what_is_no_text_cannot_be_printed() -> None:
    with pytest.raises(OptionError, match=r"^--log-prefix is no UTF-8 text"):
        config_text(Options(log_prefix="\udcff"), {})


def test_all_wrong_values_are_named(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.toml"
    config.write_text('max_msg_size = "many"\nmem_queue_size = 1.5\nsnappy = true\n')
    with pytest.raises(OptionError) as refused:
        resolve(read_command_line([f"--config={config}"]))
    first, second = str(refused.value).split("; ")
    assert first.startswith(f"config file {config}: m") and first.endswith(("not 1.5", 'not "many"'))
    assert second.startswith(f"config file {config}: m") and second.endswith(("not 1.5", 'not "many"'))

"""Options from environment variables."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.errors import OptionError
from nsqtw.options.broker import BY_FLAG
from nsqtw.options.environment import Environment


def read(flag: str, text: str) -> Any:
    option = BY_FLAG[flag]
    return Environment({option.variable: text}).read(option)


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("msg-timeout", "1m", 60.0),
        ("max-rdy-count", "0x10", 16),
        ("deflate", "F", False),
        ("tls-required", "tcp-https", 1),
        ("http-address", "", ""),
        ("lookupd-tcp-address", "a:1,b:2", ("a:1", "b:2")),
        ("lookupd-tcp-address", " a:1, ", ("a:1",)),
        ("lookupd-tcp-address", "", ()),
        ("e2e-processing-latency-percentile", "0.5,0.99", (0.99, 0.5)),
        ("e2e-processing-latency-percentile", "", ()),
        ("protocol", "V2, V3", ("V2", "V3")),
        ("max-msg-size", "2MB", 2 << 20),
    ],
)
def test_a_value_is_written_as_for_the_flag_and_a_list_has_commas(flag: str, text: str, value: object) -> None:
    assert value == read(flag, text)


def test_a_variable_is_the_flag_in_upper_case() -> None:
    assert BY_FLAG["lookupd-tcp-address"].variable == "NSQTW_LOOKUPD_TCP_ADDRESS"
    environment = Environment({"NSQTW_NODE_ID": "5", "NODE_ID": "6", "nsqtw_deflate": "0"})
    assert environment.holds(BY_FLAG["node-id"])
    assert not environment.holds(BY_FLAG["deflate"])


@pytest.mark.parametrize(
    ("flag", "text", "line"),
    [
        (
            "msg-timeout",
            "5",
            'invalid value "5" for NSQTW_MSG_TIMEOUT: must be a number with a unit, such as 250ms or 1h30m',
        ),
        ("max-rdy-count", "", 'invalid value "" for NSQTW_MAX_RDY_COUNT: must be a whole number'),
        (
            "e2e-processing-latency-percentile",
            "0.5,x",
            'invalid value "0.5,x" for NSQTW_E2E_PROCESSING_LATENCY_PERCENTILE: must be'
            " numbers above 0 and at most 1, with a point, such as 0.99 or 1.0",
        ),
    ],
)
def test_a_wrong_value_names_its_variable_and_what_is_allowed(flag: str, text: str, line: str) -> None:
    with pytest.raises(OptionError) as refused:
        read(flag, text)
    assert line == str(refused.value)


def test_unknown_variables_are_pointed_out() -> None:
    environment = Environment({"NSQTW_MSG_TIMOUT": "5s", "NSQTW_XYZZY": "", "NSQTW_CONFIG": "x", "PATH": "/bin"})
    assert environment.config == "x"
    assert environment.warnings() == [
        "environment: unknown variable 'NSQTW_MSG_TIMOUT', did you mean 'NSQTW_MSG_TIMEOUT'?",
        "environment: unknown variable 'NSQTW_XYZZY'",
    ]

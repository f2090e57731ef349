"""Our tools beside NSQ's own: the same command lines and scenarios, and the outcomes that were recorded of those."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsqtw.foreign_text import printable
from nsqtw.testing import Broker
from tests.tools.command_lines import COMMAND_LINES, played
from tests.tools.nsq_tool import Ours, Programs
from tests.tools.record import RECORDED
from tests.tools.scenarios import SCENARIOS, Stage

INSTALLED = Programs(Path(sys.executable).parent)
_HINT = re.compile(r"(; must be |, did you mean )[^\n]*")
"""What our error for a wrong flag says beyond the original's."""

ANSWER_AFTER_REDIRECT = "a POST that is answered with 301 or 302 was not taken: its message is not given up"
EARLY_CHECK = "a mistake is told before anything is connected to"
ESCAPES = "Go writes \\b and \\f since 1.22, as we do; the recorded tool was built with an older one"
ESCAPED_IN_LOG = "control characters of a message are escaped in the log"
LONGER_REASON = "the line says why"
ONE_WARNING = "a warning is written once, not for each destination"
OWN_UNIT = "our durations have the unit d"
REFUSED_TOPIC = "a publish that nsqd refuses is a failure"
VERSION_FLAG = "our to_nsq has --version"
WHOLE_RECORD = "a last record without delimiter is published whole"

_TO_HTTP = "nsq_to_http -topic=t -nsqd-tcp-address=127.0.0.1:1"
_VERSION = {"exit": 0, "stdout": "to_nsq v1.3.0\n", "stderr": ""}
_POSTED_ONCE: dict[str, Any] = {
    "requests": ["A POST / one"],
    "headers": {
        "POST": [
            "Accept-Encoding: gzip",
            "Content-Length: 3",
            "Content-Type: application/octet-stream",
            "User-Agent: nsq_to_http v1.3.0",
        ]
    },
}

LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "to_nsq --version": (VERSION_FLAG, _VERSION),
    "to_nsq -version=true": (VERSION_FLAG, _VERSION),
    "to_nsq -version word": (VERSION_FLAG, _VERSION),
    "to_nsq -version=false": (VERSION_FLAG, {"exit": 1, "stderr": "--topic required\n"}),
    "to_nsq -version=maybe": (VERSION_FLAG, {"stderr": 'invalid boolean value "maybe" for -version: parse error'}),
    "nsq_stat -topic=t -channel=c -interval=1d": (
        OWN_UNIT,
        {"exit": 1, "stderr": "--nsqd-http-address or --lookupd-http-address required\n"},
    ),
    f"{_TO_HTTP} -get=http://a/%%s": (EARLY_CHECK, {"stderr": "invalid GET address - must be a printf string\n"}),
    f"{_TO_HTTP} -post=http://a -sample=nan": (
        EARLY_CHECK,
        {"stderr": "ERROR: --sample must be between 0.0 and 1.0\n"},
    ),
    f"{_TO_HTTP} -post=http://a -n=0": (EARLY_CHECK, {"stderr": "--n should be positive\n"}),
    f"{_TO_HTTP} -post=http://a -n=-1": (EARLY_CHECK, {"stderr": "--n should be positive\n"}),
    "nsq_to_nsq -topic=t -nsqd-tcp-address=127.0.0.1:1 -destination-nsqd-tcp-address=127.0.0.1:1"
    " -producer-opt=heartbeat_interval,2m": (
        EARLY_CHECK,
        {
            "exit": 2,
            "stderr": 'invalid value "heartbeat_interval,2m" for flag -producer-opt: '
            "HeartbeatInterval 2m0s must be less than ReadTimeout 1m0s",
        },
    ),
}
SCENARIO_ROWS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "http_post_301": (ANSWER_AFTER_REDIRECT, lambda _: _POSTED_ONCE | {"requeued": 1, "left": 1}),
    "http_post_302": (ANSWER_AFTER_REDIRECT, lambda _: _POSTED_ONCE | {"requeued": 1, "left": 1}),
    "http_post_redirects_end": (ANSWER_AFTER_REDIRECT, lambda _: _POSTED_ONCE),
    "http_status_lines": (
        ONE_WARNING,
        lambda outcome: {"log": [*dict.fromkeys(outcome["log"][:3]), *outcome["log"][3:]]},
    ),
    "nsq_kept_values": (
        ESCAPES,
        lambda outcome: {
            "published": [text.replace("\\u0008\\u000c", "\\b\\f") for text in outcome["published"]],
        },
    ),
    **dict.fromkeys(
        ("nsq_both", "nsq_field", "nsq_kept", "nsq_number", "nsq_number_hex", "nsq_word"),
        (ESCAPED_IN_LOG, lambda outcome: {"log": [*map(printable, outcome["log"])]}),
    ),
    "stat_no_topic": (
        LONGER_REASON,
        lambda outcome: {"stderr": f"{outcome['stderr'][:-1]}none has topic stat-no-topic\n"},
    ),
    "to_nsq_unterminated": (WHOLE_RECORD, lambda _: {"messages": "one\ntwo\nthree\n"}),
    "to_nsq_single_byte": (WHOLE_RECORD, lambda _: {"messages": "z\n", "published": 1}),
    "to_nsq_topic_of_two_words": (
        REFUSED_TOPIC,
        lambda _: {"exit": 1, "stderr": 'E_BAD_TOPIC PUB topic name "a b" is not valid\n'},
    ),
}
"""By command line or scenario: why ours differs on purpose, and what it has instead of what was recorded."""


def recorded(name: str) -> dict[str, Any]:
    """Return recorded outcomes, by command line or scenario."""
    found: dict[str, Any] = json.loads(RECORDED.joinpath(f"{name}.json").read_text("utf-8"))
    return found


def test_everything_is_recorded() -> None:
    assert [*recorded("command_lines")] == COMMAND_LINES
    assert [*recorded("scenarios")] == [*SCENARIOS]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Our tools."""
    return Ours(tmp_path_factory.mktemp("streams"))


def check_command_line(tools: Programs, line: str) -> None:
    """Fail the test when the outcome is not the one that was recorded."""
    wanted = recorded("command_lines")[line]
    if line in LINES:
        wanted = wanted | LINES[line][1]
    found = played(tools, line)
    assert found | {"stderr": _HINT.sub("", found["stderr"])} == wanted


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_a_command_line(ours: Programs, line: str) -> None:
    check_command_line(ours, line)


@pytest.mark.parametrize("line", {line.split()[0]: line for line in COMMAND_LINES}.values())
def test_a_command_line_of_an_installed_script(line: str) -> None:
    """The last one of each tool, as users start it."""
    check_command_line(INSTALLED, line)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario(ours: Programs, nsqd: Broker, tmp_path: Path, name: str) -> None:
    wanted = recorded("scenarios")[name]
    if name in SCENARIO_ROWS:
        wanted = wanted | SCENARIO_ROWS[name][1](wanted)
    assert SCENARIOS[name](Stage(ours, nsqd, tmp_path, name)) == wanted

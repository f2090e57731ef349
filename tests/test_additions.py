"""
Adding a thing takes one file.

Each addition is made in a copy of the package, a broker is started from there, and the addition is used.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from filecmp import cmp
from pathlib import Path

import pytest
from attrs import frozen

import nsqtw
from tests.process import EXECUTABLE, NsqdProcess
from tests.wire import Refused

PACKAGE = Path(nsqtw.__file__).parent


class NsqdOfTree(NsqdProcess):
    """`nsqd`, of the package in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._tree = directory
        super().__init__(directory)

    def program(self) -> list[str]:
        return ["env", f"PYTHONPATH={self._tree}", str(EXECUTABLE)]


@frozen
class Addition:
    """
    A new thing: `text` is inserted before `place` in `file`, for each of `edits`. `used` fails unless the broker has
    it.
    """

    edits: tuple[tuple[str, str, str], ...]
    used: Callable[[NsqdProcess], None]
    files: int = 1
    """The files that it takes."""


def uses_command(broker: NsqdProcess) -> None:
    with broker.client() as client:
        assert client.ask(b"SAY word\n") == b"word"


def uses_endpoint(broker: NsqdProcess) -> None:
    assert broker.http("GET", "/v2/word") == (200, b"word")
    assert "/v2/word" in json.loads(broker.http("GET", "/v2/openapi.json").body)["paths"]


def uses_setting(broker: NsqdProcess) -> None:
    path = "/v2/channel/policy?topic=t&channel=c"
    assert broker.http("PUT", path, b'{"max_silence": "1m"}').status == 200
    assert json.loads(broker.http("GET", path).body)["settings"]["max_silence"] == {"value": "1m0s", "source": "set"}
    assert broker.http("PUT", path, b'{"max_silence": "soon"}').status == 400


def uses_metric(broker: NsqdProcess) -> None:
    assert broker.http("POST", "/topic/create?topic=t").status == 200
    assert broker.http("POST", "/channel/create?topic=t&channel=abc").status == 200
    topics = json.loads(broker.http("GET", "/stats?format=json").body)["topics"]
    assert [channel["name_length"] for topic in topics for channel in topic["channels"]] == [3]
    assert b"name: 3" in broker.http("GET", "/stats").body
    assert b'nsq_channel_name_length{channel="abc",topic="t"} 3' in broker.http("GET", "/metrics").body


ADDITIONS = {
    "V2 command": Addition(
        (
            (
                "protocols/v2.py",
                "COMMANDS: dict",
                "def _say(session: V2Session, verb: bytes, params: Any, payload: list[bytes], now: float) -> None:\n"
                "    from nsqtw.protocols.frames import RESPONSE, frame\n"
                "    session._replies.add(frame(RESPONSE, params[0]))\n\n\n",
            ),
            ("protocols/v2.py", '    b"NOP": ', '    b"SAY": CommandSpec(ANY_STATE, _say, shown=(shown_name,)),\n'),
        ),
        uses_command,
    ),
    "endpoint": Addition(
        (
            (
                "api/site.py",
                '    @endpoint("GET", "/v2/openapi.json"',
                '    @endpoint("GET", "/v2/word", "A word", success=AN_OK, needs=ANY_RIGHT)\n'
                "    def word(self, request: HttpRequest) -> Answer:\n"
                '        return plain(200, "word")\n\n',
            ),
            (
                "api/site.py",
                "class Description(Section)",
                "from nsqtw.http.endpoints import AN_OK\nfrom nsqtw.http.responses import plain\n\n\n",
            ),
        ),
        uses_endpoint,
    ),
    "setting of a policy": Addition(
        (
            (
                "options/policies.py",
                "    max_rate: float = setting(",
                '    max_silence: float = setting(DURATION, 0.0, "longest time without a message", 0, _MAX_SECONDS)\n',
            ),
        ),
        uses_setting,
    ),
    "metric": Addition(
        (
            (
                "stats/metrics.py",
                '    Metric("zone_local_msg_count"',
                '    Metric("name_length", GAUGE, lambda channel: len(channel.name), label="name",\n'
                '           series=Series("nsq_channel_name_length", "Letters of the name.", 20)),\n',
            ),
        ),
        uses_metric,
    ),
}
"""By the name of the thing that is added."""


@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_takes_as_many_files(name: str, tmp_path: Path) -> None:
    addition, copy = ADDITIONS[name], tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert changed_files(copy) == []
    for file, place, text in addition.edits:
        before = (copy / file).read_text()
        assert before.count(place) == 1, f"{place!r} is not once in {file}"
        (copy / file).write_text(before.replace(place, text + place))
    broker = NsqdOfTree(tmp_path)
    try:
        broker.start()
        addition.used(broker)
        broker.stop()
    finally:
        broker.close()
    assert len(changed_files(copy)) == addition.files


@pytest.mark.parametrize("name", ADDITIONS)
def test_a_broker_without_the_addition_does_not_have_it(name: str, tmp_path: Path) -> None:
    broker = NsqdProcess(tmp_path)
    try:
        broker.start()
        with pytest.raises((AssertionError, KeyError, Refused)):
            ADDITIONS[name].used(broker)
    finally:
        broker.close()


def changed_files(copy: Path) -> list[str]:
    """The files of a copy that are new or not as in the package."""
    files = [file.relative_to(copy) for file in copy.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    return [
        str(file)
        for file in files
        if not ((PACKAGE / file).is_file() and cmp(copy / file, PACKAGE / file, shallow=False))
    ]

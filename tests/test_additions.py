"""
Adding a thing takes one file.

Each addition is made in a copy of the package, programs are started from there, and the addition is used.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from filecmp import cmp
from pathlib import Path

import pytest
from attrs import frozen

import nsqtw
from tests.admin.process import AdminProcess
from tests.process import EXECUTABLE, starting
from tests.wire import HOST, Refused

PACKAGE = Path(nsqtw.__file__).parent


@frozen
class Addition:
    """
    A new thing: `text` is inserted before `place` in `file`, for each of `edits`. `used` starts programs, with its
    argument as the one for their files, and fails unless they have it.
    """

    edits: tuple[tuple[str, str, str], ...]
    used: Callable[[Path], None]
    files: int = 1
    """The files that it takes."""


def uses_command(directory: Path) -> None:
    with starting(directory) as start, start().client() as client:
        assert client.ask(b"SAY word\n") == b"word"


def uses_endpoint(directory: Path) -> None:
    with starting(directory) as start:
        broker = start()
        assert broker.http("GET", "/v2/word") == (200, b"word")
        assert "/v2/word" in json.loads(broker.http("GET", "/v2/openapi.json").body)["paths"]


def uses_setting(directory: Path) -> None:
    with starting(directory) as start:
        broker = start()
        path = "/v2/channel/policy?topic=t&channel=c"
        assert broker.http("PUT", path, b'{"max_silence": "1m"}').status == 200
        assert json.loads(broker.http("GET", path).body)["settings"]["max_silence"] == {
            "value": "1m0s",
            "source": "set",
        }
        assert broker.http("PUT", path, b'{"max_silence": "soon"}').status == 400


def uses_metric(directory: Path) -> None:
    with starting(directory) as start:
        broker = start()
        assert broker.http("POST", "/topic/create?topic=t").status == 200
        assert broker.http("POST", "/channel/create?topic=t&channel=abc").status == 200
        topics = json.loads(broker.http("GET", "/stats?format=json").body)["topics"]
        assert [channel["name_length"] for topic in topics for channel in topic["channels"]] == [3]
        assert b"name: 3" in broker.http("GET", "/stats").body
        assert b'nsq_channel_name_length{channel="abc",topic="t"} 3' in broker.http("GET", "/metrics").body


def uses_option(directory: Path) -> None:
    with starting(directory) as start:
        assert start("--word=abc").http("GET", "/config/word") == (200, b"abc")
    assert "  -word string\n" in said("nsqd", "--help")


def uses_verb(directory: Path) -> None:
    assert said("nsqtw", "word", "--times", "2") == "word word \n"
    assert "print a word" in said("nsqtw", "--help")


def uses_page(directory: Path) -> None:
    with starting(directory) as start:
        admin = AdminProcess(directory / "admin", f"--nsqd-http-address={HOST}:{start().http_port}")
        with closing(admin):
            admin.start()
            shown = admin.get("/word")
            assert (shown.status, b"a word on a page" in shown.body) == (200, True)


def said(program: str, *words: str) -> str:
    """Run a program, and return its output."""
    done = subprocess.run([EXECUTABLE.with_name(program), *words], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


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
                "options/settings.py",
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
    "option": Addition(
        (
            (
                "options/broker_address.py",
                "    topology_zone: str = option(",
                '    word: str = option(TEXT, "", "a word")\n',
            ),
        ),
        uses_option,
    ),
    "verb": Addition(
        (
            (
                "cli/verbs/cluster.py",
                '    verb(\n        "nodes",',
                '    verb("word", "print a word", "nodes:word", option("--times", "Times.", type=int, default=1)),\n',
            ),
            (
                "cli/nodes.py",
                "async def list_nodes(",
                "def word(session: Session, times: int) -> None:\n"
                "    from nsqtw.printing import write_line\n"
                '    write_line("word " * times)\n\n\n',
            ),
        ),
        uses_verb,
        # Help and completion read the declaration without what the function imports.
        files=2,
    ),
    "nsqadmin page": Addition(
        (
            (
                "admin/pages/nodes.py",
                '@page("nodes", "nodes.html", NODES)',
                '@page("word", "error.html", NODES)\n'
                "async def word(page_request: PageRequest) -> Content:\n"
                '    return {"title": "Word", "text": "a word on a page"}\n\n\n',
            ),
        ),
        uses_page,
    ),
}
"""By the name of the thing that is added."""


@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_takes_as_many_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addition, copy = ADDITIONS[name], tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert changed_files(copy) == []
    for file, place, text in addition.edits:
        before = (copy / file).read_text()
        assert before.count(place) == 1, f"{place!r} is not once in {file}"
        (copy / file).write_text(before.replace(place, text + place))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    addition.used(tmp_path)
    assert len(changed_files(copy)) == addition.files


@pytest.mark.parametrize("name", ADDITIONS)
def test_what_is_not_added_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, KeyError, Refused)):
        ADDITIONS[name].used(tmp_path)


def changed_files(copy: Path) -> list[str]:
    """The files of a copy that are new or not as in the package."""
    files = [file.relative_to(copy) for file in copy.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    return [
        str(file)
        for file in files
        if not ((PACKAGE / file).is_file() and cmp(copy / file, PACKAGE / file, shallow=False))
    ]

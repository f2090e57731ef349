"""Everything docs/how-to/retention.md tells people to type does what it says, with a broker as they run it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.options.command_line import read_command_line, resolve
from nsqtw.options.topics import Retention
from tests.process import NsqdProcess

PAGE = (Path(__file__).parent.parent / "docs/how-to/retention.md").read_text("utf-8")
ADDRESS = "127.0.0.1:4151"
ID = "0a1b2c3d4e5f6071"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for word, text in found if word == language]


def commands() -> Iterator[tuple[str, str]]:
    """Method and target of each curl command of the page, in order."""
    for line in "".join(blocks("")).splitlines():
        if line.startswith("curl "):
            words = shlex.split(line)
            url = words.pop()
            assert words in (["curl"], ["curl", "-X", "POST"])
            yield ("POST" if "POST" in words else "GET"), url.removeprefix(f"http://{ADDRESS}")


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    process = NsqdProcess(tmp_path, "--retention-time=1h")
    process.start()
    process.create("orders", "billing")
    process.publish("orders", [b"one", b"two", b"three"])
    yield process
    process.close()


def test_every_command_is_answered(nsqd: NsqdProcess) -> None:
    (message, *_) = json.loads(nsqd.http("GET", "/v2/channel/messages?topic=orders&channel=billing").body)["messages"]
    done = 0
    for method, target in commands():
        answer = nsqd.http(method, target.replace(ID, message["id"]))
        assert answer.status == 200, (target, answer)
        done += 1
    assert done >= 17
    nsqd.assert_no_traceback()


def test_the_reader_of_the_page_reads_everything(nsqd: NsqdProcess) -> None:
    (program,) = blocks("python")
    names: dict[str, object] = {}
    exec(program.replace(ADDRESS, f"127.0.0.1:{nsqd.http_port}"), names)
    assert names["bodies"] == [b"one", b"two", b"three"]


def test_the_config_file_of_the_page(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    path = tmp_path / "nsqd.toml"
    path.write_text(text)
    options = resolve(read_command_line([f"--config={path}"])).options
    assert options.retention_of("clicks") == Retention(3600.0, 0)
    assert options.retention_of("orders.eu") == Retention(7 * 86400.0, 10 * 2**30)
    assert options.channel_start_of("orders.eu") == "earliest"


def test_the_answer_of_the_page_has_the_fields_of_one(nsqd: NsqdProcess) -> None:
    (shown,) = blocks("json")
    answer = nsqd.http("POST", "/v2/channel/seek?topic=orders&channel=billing&to=latest")
    assert json.loads(answer.body).keys() == json.loads(shown).keys()

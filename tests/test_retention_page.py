"""Everything docs/how-to/retention.md tells people to type does what it says, with a broker as they run it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.options.command_line import read_command_line, resolve
from nsqtw.options.topics import Retention
from tests.pages import Page, reading
from tests.process import NsqdProcess

PAGE = Page("how-to/retention.md")


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    process = NsqdProcess(tmp_path, "--retention-time=1h")
    process.start()
    process.create("orders", "billing")
    process.publish("orders", [b"one", b"two", b"three"])
    yield process
    process.close()


def test_a_reader_can_follow_the_page(tmp_path: Path) -> None:
    with reading("how-to/retention.md", tmp_path) as reader:
        assert len(reader.follow()) >= 17


def test_the_reader_of_the_page_reads_everything(nsqd: NsqdProcess) -> None:
    (program,) = PAGE.blocks("python")
    names: dict[str, object] = {}
    exec(program.replace("127.0.0.1:4151", f"127.0.0.1:{nsqd.http_port}"), names)
    assert names["bodies"] == [b"one", b"two", b"three"]


def test_the_config_file_of_the_page(tmp_path: Path) -> None:
    (text,) = PAGE.blocks("toml")
    path = tmp_path / "nsqd.toml"
    path.write_text(text)
    options = resolve(read_command_line([f"--config={path}"])).options
    assert options.retention_of("clicks") == Retention(3600.0, 0)
    assert options.retention_of("orders.eu") == Retention(7 * 86400.0, 10 * 2**30)
    assert options.channel_start_of("orders.eu") == "earliest"


def test_the_answer_of_the_page_has_the_fields_of_one(nsqd: NsqdProcess) -> None:
    (shown,) = PAGE.blocks("json")
    answer = nsqd.http("POST", "/v2/channel/seek?topic=orders&channel=billing&to=latest")
    assert json.loads(answer.body).keys() == json.loads(shown).keys()

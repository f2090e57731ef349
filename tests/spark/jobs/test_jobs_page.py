"""Every command of docs/how-to/spark-replay.md and spark-profile.md does what the page says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark_nsq.jobs.messages import COLUMNS
from pyspark_nsq.jobs.profile.command import profile
from pyspark_nsq.jobs.replay.command import replay

from tests.process import NsqdProcess
from tests.spark.jobs.conftest import Job, at
from tests.wire import HOST

PAGES = {
    title: (Path(__file__).parents[3] / f"docs/how-to/spark-{title.lower()}.md").read_text("utf-8")
    for title in ("Replay", "Profile")
}
ADDRESS = "127.0.0.1:4151"
COUNTRIES = ("de", "fr")
MESSAGES = 60


def commands(title: str) -> Iterator[list[str]]:
    """The words of each command of a page, without the name of the program."""
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGES[title], re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", "").splitlines():
            program, *words = shlex.split(line)
            assert program == "nsqtw-spark"
            yield words


@pytest.fixture
def broker(broker: NsqdProcess) -> NsqdProcess:
    """A broker with the topic of the page."""
    broker.create("clicks", "billing")
    broker.order("/v2/topic/retention?topic=clicks&time=1h")
    now = datetime.now(UTC).isoformat()
    clicks = [{"country": COUNTRIES[number % 2], "time": now, "user": {"id": number}} for number in range(MESSAGES)]
    answer = broker.http("POST", "/mpub?topic=clicks", b"\n".join(json.dumps(click).encode() for click in clicks))
    assert answer.status == 200
    return broker


def test_every_command_works(job: Job, broker: NsqdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Spark's Java keeps the folder in which it was started: a relative path would be there.
    lake = str(tmp_path / "lake")
    assert job("archive", at(broker), "--topic=clicks", f"--output={lake}", "--once", "--quiet").code == 0
    address = f"{HOST}:{broker.http_port}"
    lines = []
    for title in ("Replay", "Profile"):
        for words in commands(title):
            # The moments of the page are before or after the messages, depending on the day of the test.
            given = [word.replace(ADDRESS, address).replace("2026-11-25T", "2020-01-01T") for word in words]
            given = [lake if word == "lake" else word for word in given]
            done = job(*given)
            assert done.code == 0, (words, done)
            lines.append(done.out.splitlines()[-1] if title == "Replay" else "")
    assert lines[0].split()[:2] == ["total", str(MESSAGES)]
    assert lines[1].startswith(f'replayed {MESSAGES} messages into topic "clicks.again"')
    assert lines[2].startswith(f'replayed {MESSAGES // 2} messages into topic "clicks.again"')
    assert lines[3].startswith("would replay 0 messages") and lines[4].startswith("replayed 0 messages")
    assert lines[5].startswith(f'replayed {MESSAGES // 2} messages into topic "clicks"')
    assert "<h2>clicks</h2>" in (tmp_path / "clicks.html").read_text("utf-8")
    count = MESSAGES + MESSAGES // 2
    assert count == len(broker.drain("clicks", "billing", count))


def test_the_page_has_every_option_and_column() -> None:
    common = {"--master", "--conf", "--nsqd-http-address", "--lookupd-http-address", "--auth-secret-file"}
    common |= {"--tls-ca-file", "--tls-cert-file", "--tls-key-file", "--metrics-port"}
    for title, command in (("Replay", replay), ("Profile", profile)):
        flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        text = PAGES[title]
        assert set() == {flag for flag in flags - common - {"--duplicates"} if f"`{flag}" not in text}
    assert set() == {column for column in COLUMNS if f"`{column}`" not in PAGES["Replay"]}

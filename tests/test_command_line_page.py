"""The commands of docs/how-to/command-line.md, in the order of the page, against a broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nsqtw.testing import Broker

PAGE = (Path(__file__).parent.parent / "docs/how-to/command-line.md").read_text("utf-8")
BIN = Path(sys.executable).parent
ENDLESS = re.compile(r"nsqtw tail orders($| --json)|nsqtw up$")
"""Commands that run until Ctrl-C."""


def section(title: str) -> list[str]:
    """The commands below a heading."""
    (text,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    return "".join(re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)).splitlines()


class Shell:
    """A shell of a new user, in an empty home directory."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def run(self, command: str) -> str:
        """Run a command that is expected to succeed. What it prints."""
        environment = {"HOME": str(self._home), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            command, shell=True, cwd=self._home, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_commands_for_messages_work_in_their_order(shell: Shell, nsq_broker: Broker) -> None:
    shell.run(f"nsqtw context add here --nsqd-http-address {nsq_broker.http_address}")
    printed = {
        command: shell.run(command.replace("nsqtw seek", "nsqtw seek --yes"))
        for command in section("Publish and read")
        if not ENDLESS.match(command)
    }
    assert printed["nsqtw tail orders archive -n 10"].split() == [str(number) for number in range(1, 11)]
    waiting = printed["nsqtw peek orders archive"].splitlines()[1:]
    assert [line.split()[-1] for line in waiting] == [str(number) for number in range(11, 21)]
    for command in section("Topics, channels, nodes"):
        shell.run(command.replace("channel empty", "channel empty --yes"))


def test_the_first_context_is_in_use_until_another_is_chosen(shell: Shell, nsq_broker: Broker) -> None:
    add_here, add_prod, use_prod, list_topics = section("Contexts")
    shell.run(add_here.replace("127.0.0.1:4151", nsq_broker.http_address))
    shell.run("nsqtw topic create orders")
    shell.run(add_prod)
    shell.run("nsqtw topic show orders")
    shell.run(use_prod)
    assert "orders" in shell.run(list_topics)


def test_the_commands_for_completion_write_where_nothing_is_yet(shell: Shell, tmp_path: Path) -> None:
    lines = [line for line in section("Completion") if "fish" in line and not line.startswith("#")]
    for line in lines:
        shell.run(line)
    assert (tmp_path / ".config/fish/completions/nsqtw.fish").read_text("utf-8")

"""Everything docs/how-to/high-availability.md tells people to type does what it says, with two brokers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import Page
from tests.process import NsqdProcess, comes_true
from tests.replication.servers import PostgresPair
from tests.wire import HOST, Client

PAGE = Page("how-to/high-availability.md")
BIN = Path(sys.executable).parent
FILE = "/etc/nsqtw/replica.toml"
DATA_PATH = "/var/lib/nsqd"


@pytest.fixture(scope="module")
def servers() -> Iterator[PostgresPair]:
    pair = PostgresPair()
    try:
        pair.start()
        yield pair
    finally:
        pair.close()


def commands(word: str) -> list[str]:
    """Return the commands of the page that begin with these words, in order."""
    lines = [line for block in PAGE.blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith(word)]


class Broker(NsqdProcess):
    """A broker that may begin as a standby, which has no TCP."""

    def _listens(self, said: str) -> bool:
        assert self.runs, said
        return "HTTP: listening" in said

    @property
    def is_ready(self) -> bool:
        return self.http("GET", "/readyz").status == 200


class Reader:
    """A reader of the page with two machines, which are two directories."""

    def __init__(self, directory: Path, servers: PostgresPair) -> None:
        self._file = directory / "replica.toml"
        [config] = PAGE.blocks("toml")
        assert tomllib.loads(config)["data_set"] == "orders"
        password = directory / "password"
        password.write_text("secret-password\n")
        config = config.replace("/etc/nsqtw/replica.password", str(password))
        lines = [f'dsn = "{servers.dsn}"' if line.startswith("dsn") else line for line in config.splitlines()]
        self._file.write_text("\n".join(lines))
        for path in (self._file, password):
            path.chmod(0o600)
        [start] = commands("nsqd ")
        start = start.replace(FILE, str(self._file)).replace("=broker1", f"={HOST}")
        flags = [word for word in shlex.split(start)[1:] if "--data-path" not in word]
        self.brokers = [Broker(directory / name, *flags) for name in ("one", "two")]
        self.owner, self.standby = self.brokers

    def type(self, command: str) -> str:
        """Run a command of the page; what it printed."""
        typed = command.replace(FILE, str(self._file)).replace(DATA_PATH, str(self.owner.data_path))
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(shlex.split(typed), capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, (typed, done.stdout, done.stderr)
        return done.stdout + done.stderr


def test_a_reader_can_follow_the_page(tmp_path: Path, servers: PostgresPair) -> None:
    reader = Reader(tmp_path, servers)
    owner, standby = reader.owner, reader.standby
    [init], [status], [doctor], [promote], [detach], [forget] = map(
        commands,
        (
            *("nsqtw replicate init", "nsqtw replicate status", "nsqtw doctor", "nsqtw replicate promote"),
            *("nsqtw replicate detach", "nsqtw replicate forget"),
        ),
    )
    assert "data set orders" in reader.type(init)
    try:
        owner.start()
        assert comes_true(lambda: owner.is_ready)
        standby.start()
        assert comes_true(lambda: "standby" in reader.type(status))
        context = f" --nsqd-http-address {HOST}:{owner.http_port}"  # the page has the default port
        assert "standbys that run: 1" in reader.type(doctor + context)
        with Client(owner.tcp_port) as client:
            client.sub("orders", "billing")
        with Client(owner.tcp_port) as client:
            client.pub("orders", b"kept")
        assert comes_true(lambda: " 0 " in reader.type(status).splitlines()[-1])
        assert "is the owner, epoch" in reader.type(promote)
        assert owner.await_end() == 3
        assert comes_true(lambda: standby.is_ready)
        with Client(standby.tcp_port) as client:
            client.sub("orders", "billing", 1)
            message = client.message()
            assert message.body == b"kept"
        standby.stop()
        reader.owner = standby
        reader.type(detach)
        reader.type(forget)
    finally:
        for broker in reader.brokers:
            broker.close()

"""
Whatever a topic or a channel is called, and whoever says so: nothing is written but under the data path, and nothing of
the broker's own is touched. Names that are none are refused, all others survive a restart.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.internet.testing import MemoryReactorClock, StringTransport

from nsqtw.api.site import broker_site
from nsqtw.daemon.operator_log import log
from nsqtw.errors import BackendError, NsqtwError
from nsqtw.names import directory_name, is_ephemeral, is_valid_name, name_of_directory
from nsqtw.nsqd.build import Parts, assemble, open_storage, write_names
from nsqtw.nsqd_import.diskqueue import HEAD
from nsqtw.options.broker import Options
from nsqtw.protocols.v2 import V2Factory
from nsqtw.runtime.storage_thread import perform
from tests.protocols.dialogue import sized

ROUNDS = 2
OWN = {"positions.db", "positions.db-wal", "positions.db-shm", "nsqd.dat", "messages.db", "messages.db-wal"}
OWN |= {
    "manifest.json",
    "positions.db.spare",
    "messages.db.spare",
    "messages.db-shm",
    "sqlite.db",
    "sqlite.db-wal",
    "sqlite.db-shm",
}

KNOWN = [
    *("", ".", "..", "...", "../x", "../../x", "/x", "/tmp/x", "a/b", "a/../../x", "./a", "..\\x", "~", "~root", "-rf"),
    *(
        "positions.db",
        "positions.db-wal",
        "positions.db.spare",
        "nsqd.dat",
        "messages.db",
        ".deleted.",
        "a.deleted.0",
        "a%2Edeleted%2E0",
    ),
    *("%2E%2E", "%2e%2e%2fx", "%", "%00", "%2F", "a\0b", "\0", "a\nb", "con", "x" * 64, "x" * 65, "x" * 300, "." * 64),
    *(
        "#ephemeral",
        "..#ephemeral",
        "." * 54 + "#ephemeral",
        "a#b",
        "a:b",
        "a;b",
        "A",
        "a",
        "\udcff",
        "é",
        "\U0001f600",
    ),
    *("a" * 200 + "/../../x", "00000000000000000000.log", "import", "nsqd.import", "lost+found"),
]
NAMES = st.sampled_from(KNOWN) | st.text("./\\\0%:;#~ aA-_2eEfF\n\udcfféy", max_size=80)


class Clock(MemoryReactorClock):
    """A reactor in which nothing happens by itself."""


class Life:
    """A broker on a data path, from its start to its stop."""

    def __init__(self, directory: Path, backend: str) -> None:
        options = Options(node_id=1, backend=backend, max_connections=0)
        self.parts: Parts = assemble(Clock(), options, open_storage(options, str(directory)))
        self.broker = self.parts.broker
        self.turn()

    def turn(self) -> None:
        """All that is to be stored is stored."""
        broker, storage = self.broker, self.parts.storage
        now = self.parts.pump.now()
        broker.tick(now)
        broker.commit(now)
        while (flight := broker.group_commit.begin(now)) is not None:
            broker.group_commit.end(flight, flight.commit(log), now)
        broker.serve(now)
        save = broker.checkpointer.begin(now)
        broker.checkpointer.end(
            save, perform(save, storage.positions, log, partial(write_names, storage.metadata_path))
        )

    def stop(self) -> dict[str, int]:
        """The durable topics there were, and how many messages each has ever had."""
        self.turn()
        topics = {topic.name: topic.put_total for topic in self.broker.topics.values() if not topic.ephemeral}
        self.broker.stop(self.parts.pump.now())
        self.turn()
        self.parts.storage.close(True)
        self.parts.limits.close()
        return topics


Attack = Callable[[Life, str], None]


def by_a_protocol_that_checks_nothing(life: Life, name: str) -> None:
    with suppress(NsqtwError):
        life.broker.topic(name).put([b"x"], 0, lambda error: None)
    with suppress(NsqtwError):
        life.broker.topic("t").channel(name, 0.0)
    with suppress(NsqtwError):
        life.broker.topic(name).channel(name, 0.0)


def by_v2(life: Life, name: str) -> None:
    raw = name.encode("utf-8", "surrogateescape")
    for command in (b"PUB %s\n" % raw + sized(b"x"), b"MPUB %s\n" % raw, b"SUB t %s\n" % raw, b"SUB %s c\n" % raw):
        session = V2Factory.session(life.broker, "1.2.3.4:5", lambda: None, life.parts.pump.now())
        session.receive_data(command, life.parts.pump.now())
        session.connection_lost(life.parts.pump.now())


def by_http(life: Life, name: str) -> None:
    site = broker_site(life.broker, life.parts.pump, tcp_port=1, http_port=2, version_line="", limits=life.parts.limits)
    said = quote(name.encode("utf-8", "surrogateescape"), safe="")
    for path in ("/pub?topic=", "/topic/create?topic=", "/channel/create?topic=t&channel=", "/topic/empty?topic="):
        connection = site.buildProtocol(None)
        connection.makeConnection(StringTransport())
        connection.dataReceived(f"POST {path}{said} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx".encode())


def by_metadata(directory: Path, names: list[str]) -> None:
    named = [{"name": name, "channels": [{"name": name}, {"name": "c"}]} for name in names]
    (directory / "nsqd.dat").write_text(json.dumps({"topics": named, "version": "1.3.0"}))


def by_files_of_nsqd(directory: Path, names: list[str]) -> None:
    by_metadata(directory, names)
    for queue in [queue for name in names for queue in (name, f"{name}:c", f"t:{name}")]:
        with suppress(OSError, ValueError):
            path = os.path.join(directory, f"{queue}.diskqueue.000000.dat".replace("/", "_"))
            Path(path).write_bytes(sized(HEAD.pack(1, 1, b"0" * 16) + b"x"))


def outside(root: Path, directory: Path) -> dict[str, bytes]:
    """All that is under `root` and not in the data path."""
    found = {}
    for where, directories, files in os.walk(root):
        if Path(where) == directory:
            directories.clear()
            continue
        found.update({os.path.join(where, name): b"" for name in directories})
        found.update({os.path.join(where, name): Path(where, name).read_bytes() for name in files})
    return found


@pytest.fixture
def root() -> Iterator[Path]:
    """A tree with a data path far below, so that a name may lead up some steps."""
    with tempfile.TemporaryDirectory() as one:
        yield Path(one)


def prepared(root: Path) -> Path:
    """A fresh data path, with neighbours."""
    place = Path(tempfile.mkdtemp(dir=root)) / "a" / "b"
    (place / "data").mkdir(parents=True)
    for neighbour in ("x", "positions.db", "data.deleted.0"):
        (place / neighbour).write_bytes(b"a neighbour's")
    return place / "data"


def assert_only_names(directory: Path, topics: dict[str, int]) -> None:
    for entry in os.listdir(directory):
        assert len(os.fsencode(entry)) <= 200
        if entry not in OWN:
            assert name_of_directory(entry) in topics, f"{entry!r} in the data path"


@pytest.mark.parametrize("backend", ["disk", "sqlite"])
@pytest.mark.parametrize("attack", [by_a_protocol_that_checks_nothing, by_v2, by_http])
def test_nothing_is_written_elsewhere(attack: Attack, backend: str, root: Path) -> None:
    @settings(max_examples=ROUNDS)
    @given(st.lists(NAMES, min_size=1, max_size=8))
    @example(KNOWN)
    def hold(names: list[str]) -> None:
        directory = prepared(root)
        before = outside(root, directory)
        life = Life(directory, backend)
        for name in names:
            attack(life, name)
        topics = life.stop()
        assert all(map(is_valid_name, topics))
        assert_only_names(directory, topics)
        again = Life(directory, backend)
        assert {name: again.broker.topics[name].put_total for name in topics} == topics
        for name in list(again.broker.topics):
            again.broker.delete_topic(name)
        assert again.stop() == {}
        assert_only_names(directory, {})
        assert outside(root, directory) == before

    hold()


@pytest.mark.parametrize("backend", ["disk", "sqlite"])
def test_every_name_there_may_be_is_kept_apart(backend: str, root: Path) -> None:
    directory = prepared(root)
    names = sorted({name for name in KNOWN if is_valid_name(name) and not is_ephemeral(name)})
    life = Life(directory, backend)
    for count, name in enumerate(names, 1):
        life.broker.topic(name).channel(name, 0.0)
        life.broker.topic(name).put([b"x"] * count, 0, lambda error: None)
    life.stop()
    again = Life(directory, backend)
    assert {name: topic.put_total for name, topic in again.broker.topics.items()} == {
        name: count for count, name in enumerate(names, 1)
    }
    assert all(list(topic.channels) == [name] for name, topic in again.broker.topics.items())
    again.stop()


@pytest.mark.parametrize("backend", ["disk", "sqlite"])
@pytest.mark.parametrize("attack", [by_metadata, by_files_of_nsqd])
def test_what_an_nsqd_left_leads_nowhere_else(
    attack: Callable[[Path, list[str]], None], backend: str, root: Path
) -> None:
    @settings(max_examples=ROUNDS)
    @given(st.lists(NAMES, min_size=1, max_size=8))
    @example(KNOWN)
    def hold(names: list[str]) -> None:
        directory = prepared(root)
        attack(directory, names)
        before = outside(root, directory)
        with suppress(NsqtwError):  # one line, and no start
            life = Life(directory, backend)
            assert all(map(is_valid_name, life.broker.topics))
            life.stop()
            Life(directory, backend).stop()
        assert outside(root, directory) == before

    hold()


@pytest.mark.parametrize("name", [name for name in KNOWN if not is_valid_name(name)])
def test_a_backend_takes_no_name_that_is_none(name: str, root: Path) -> None:
    with pytest.raises(ValueError, match="is no name of a topic"):
        directory_name(name)
    directory = prepared(root)
    options = Options(node_id=1)
    storage = open_storage(options, str(directory))
    with pytest.raises(BackendError, match="is no name of a topic"):
        storage.backend.queue(name)
    storage.close(True)


@given(st.from_regex(r"[.a-zA-Z0-9_-]{1,64}", fullmatch=True))
def test_a_name_has_room_on_every_disk(name: str) -> None:
    directory = directory_name(name)
    assert len(f"{directory}.deleted.999999") <= 255
    assert name_of_directory(directory) == name
    assert set(directory) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-%")

"""How a broker with a replica store begins: what it does with the data path that it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from nsqtw.errors import NoDataSet, NotACopy
from nsqtw.replication.replica import LOCAL, STORE, Replica, ReplicaSettings
from nsqtw.replication.state_file import StateFile, new_state, read_state
from nsqtw.testing.contracts import make_segment, messages, read_all
from nsqtw.testing.replica_memory import MemoryDatabase, MemoryReplicaStore
from tests.replication.harness import LEASE, disk_backend, no_log


class NoReactor:
    """Tells nobody."""

    def callFromThread(self, callable: Any, *args: object, **kwargs: object) -> None:
        """InReactor API"""


@pytest.fixture
def store() -> MemoryReplicaStore:
    store = MemoryReplicaStore(MemoryDatabase())
    store.create()
    return store


def begun(directory: Path, store: MemoryReplicaStore, **changes: Any) -> Any:
    """Return the copy with which a broker begins."""
    settings = ReplicaSettings(
        directory=str(directory),
        address="",
        http_address="",
        lease=LEASE,
        replace="none",
        names_file="nsqd.dat",
        is_foreign=lambda: False,
        open_store=lambda: store,
        open_backend=lambda: disk_backend(str(directory)),
    )
    events: Any = None
    replica = Replica(NoReactor(), evolve(settings, **changes), events, no_log)
    copy = replica._open_copy(store)
    assert copy is not None
    return copy


def put(directory: Path, *sequences: int) -> None:
    """Store messages in a data path that is not used."""
    backend = disk_backend(str(directory))
    for sequence in sequences:
        backend.commit([(backend.queue("t"), [make_segment(sequence)])], False)
    backend.close()


def in_store(store: MemoryReplicaStore) -> list[int]:
    return list(messages([one.segment for one in store.segments(0, 1 << 20)]))


def test_an_empty_data_path_begins_as_a_copy_that_has_nothing(tmp_path: Path, store: MemoryReplicaStore) -> None:
    copy = begun(tmp_path, store)
    assert (copy.lsn, copy.topics) == (0, [])


def test_messages_that_are_no_copy_are_refused(tmp_path: Path, store: MemoryReplicaStore) -> None:
    """One line names both remedies."""
    put(tmp_path, 5)
    with pytest.raises(NotACopy, match=r"--replicate-from=store .* --replicate-from=local"):
        begun(tmp_path, store)


def test_the_store_takes_their_place(tmp_path: Path, store: MemoryReplicaStore) -> None:
    """They are set aside."""
    put(tmp_path, 5)
    assert begun(tmp_path, store, replace=STORE).topics == []
    assert (tmp_path / "replaced.1" / "t").is_dir()


def test_they_take_the_place_of_what_the_store_has(tmp_path: Path, store: MemoryReplicaStore) -> None:
    """The data set is another one from then on."""
    put(tmp_path, 5, 6)
    before = store.data_set()
    copy = begun(tmp_path, store, replace=LOCAL)
    after = store.data_set()
    assert before is not None and after is not None
    assert after.identity != before.identity
    assert in_store(store) == [5, 6]
    assert copy.topics == ["t"]
    assert copy.is_last_owner(after)


def test_without_a_data_set_nothing_is_set_aside(tmp_path: Path, store: MemoryReplicaStore) -> None:
    """The address may be wrong."""
    store.forget()
    put(tmp_path, 5)
    with pytest.raises(NoDataSet):
        begun(tmp_path, store, replace=STORE)
    assert not (tmp_path / "replaced.1").exists()


def test_the_copy_of_a_standby_does_not_replace_the_data_set(tmp_path: Path, store: MemoryReplicaStore) -> None:
    """It has no positions."""
    put(tmp_path, 5)
    StateFile(str(tmp_path), new_state("another")).close(is_synced=True)
    with pytest.raises(NotACopy, match="copy of a standby"):
        begun(tmp_path, store, replace=LOCAL)


def test_a_data_path_that_is_not_trusted_is_copied_again(tmp_path: Path, store: MemoryReplicaStore) -> None:
    """What it had is kept until that is done."""
    data_set = store.data_set()
    assert data_set is not None
    put(tmp_path, 5)
    file = StateFile(str(tmp_path), new_state(data_set.identity))
    file.distrust()
    file.close(is_synced=True)
    assert begun(tmp_path, store).topics == []
    assert (tmp_path / "replaced.1" / "t").is_dir()


def test_damage_that_the_opening_repairs_is_remembered(
    tmp_path: Path, store: MemoryReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next opening finds none, whatever fails before the data path is set aside."""
    data_set = store.data_set()
    assert data_set is not None
    put(tmp_path, 5, 6, 7)
    StateFile(str(tmp_path), new_state(data_set.identity)).close(is_synced=True)
    [log] = (tmp_path / "t").glob("*.log")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)

    def refuse(*arguments: object) -> str:
        raise NotACopy("interrupted")

    with monkeypatch.context() as patched:
        patched.setattr("nsqtw.replication.replica.set_aside", refuse)
        with pytest.raises(NotACopy, match="interrupted"):
            begun(tmp_path, store)
    state = read_state(str(tmp_path))
    assert state is not None
    assert not state.is_trusted
    assert begun(tmp_path, store).topics == []


def test_messages_of_an_nsqd_are_refused(tmp_path: Path, store: MemoryReplicaStore) -> None:
    """They are taken over by a start without a store."""
    with pytest.raises(NotACopy, match="start once without --replicate"):
        begun(tmp_path, store, is_foreign=lambda: True)


def test_a_copy_is_read_as_it_was(tmp_path: Path, store: MemoryReplicaStore) -> None:
    """Nothing is set aside."""
    data_set = store.data_set()
    assert data_set is not None
    put(tmp_path, 5)
    StateFile(str(tmp_path), new_state(data_set.identity)).close(is_synced=True)
    copy = begun(tmp_path, store)
    assert list(messages(read_all(disk_backend(str(tmp_path)).queue("t")))) == [5]
    assert copy.topics == ["t"]

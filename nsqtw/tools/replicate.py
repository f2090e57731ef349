"""
The data set of a replica store, as an operator changes it: `nsqtw replicate init`, `promote` and `forget`.

None of it needs a broker. What is about a data path needs one that no broker uses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from nsqtw import nsqd_import
from nsqtw.backends.manifest import read_manifest
from nsqtw.daemon.data_path import lock_data_path
from nsqtw.errors import NoDataSet, NotOwner, OptionError, ReplicaError
from nsqtw.interfaces import IBackend
from nsqtw.nsqd.build import open_backend
from nsqtw.options.broker import Options
from nsqtw.plugins import find_replica_store
from nsqtw.printing import complain
from nsqtw.replication.seed import seed_data_path
from nsqtw.replication.state_file import StateFile, read_state, remove_state
from nsqtw.replication.store import DataSet, IReplicaStore
from nsqtw.tools.owner import Owner

TIMEOUT_SECONDS = 30.0
"""Of each call of the store."""
_POLL_SECONDS = 0.2

Say = Callable[[str], None]


def open_store(store: str) -> IReplicaStore:
    """Return the store that `--replicate=` names. OptionError, PluginError."""
    factory, argument = find_replica_store(store)
    return factory.open(argument, TIMEOUT_SECONDS, _complain)


def init(store_name: str, data_path: str, must_replace: bool, say: Say) -> None:
    """Create the data set with what a data path has, which becomes its first copy. NsqtwError, OSError."""
    store = open_store(store_name)  # while root can read the file and the code
    directory = os.path.abspath(data_path)
    Owner.of(directory).become()
    lock = lock_data_path(directory)
    try:
        if nsqd_import.is_due(directory):
            raise OptionError(f"{directory} has messages of an nsqd: start a broker once, which takes them over")
        existing = store.data_set()
        if existing is not None and not must_replace:
            raise OptionError(f"the replica store has the data set {existing.name}: --replace replaces it")
        if read_state(directory) is not None and not must_replace:
            raise OptionError(f"{directory} is a copy of a data set: --replace makes a new data set of it")
        state = seed_data_path(store, directory, lambda: _opened(directory), is_replaced=must_replace)
        StateFile(directory, state).close(is_synced=True)
        size = store.size()
        name = _data_set(store).name
        say(f"data set {name}: {size.messages} messages, {size.bytes} bytes, {size.pending_rows} pending rows")
    finally:
        os.close(lock)
        store.close()


def promote(store_name: str, must_force: bool, seconds: float, say: Say) -> None:
    """Have a standby take over: the owner is asked to release the data set, or is replaced. NsqtwError."""
    store = open_store(store_name)
    try:
        before = _data_set(store)
        if not must_force and not any(one.identity != before.owner for one in store.standbys()):
            raise ReplicaError("no standby has reported in the last minute: start one, or use --force")
        if must_force:
            writer = store.claim("promotion", before.address, 0.0, forced=True)
            assert writer is not None, "a forced claim is granted"
            with suppress(NotOwner):  # a standby was faster
                writer.release()
            writer.close()
            say(f"the broker at {before.address} is not the owner any more")
        else:
            store.request("promotion")
            say(f"the broker at {before.address} is asked to release the data set")
        deadline = time.monotonic() + seconds
        while (now := _data_set(store)).epoch <= before.epoch + must_force:
            if time.monotonic() >= deadline:
                if not must_force:
                    store.request("")
                remedy = "" if must_force else ": --force replaces an owner that does not answer"
                raise ReplicaError(f"no standby has taken over within {seconds:g} s{remedy}")
            time.sleep(_POLL_SECONDS)
        say(f"the broker at {now.address} is the owner, epoch {now.epoch}")
    finally:
        store.close()


def forget(store_name: str, must_force: bool, say: Say) -> None:
    """Remove the data set from the store. NsqtwError."""
    store = open_store(store_name)
    try:
        data_set = _data_set(store)
        if data_set.lease_left > 0 and not data_set.is_released and not must_force:
            raise ReplicaError(f"the broker at {data_set.address} owns the data set: stop it first, or use --force")
        store.forget()
        say(f"the data set {data_set.name} is removed; the data paths of its brokers are as they were")
    finally:
        store.close()


def detach(data_path: str, say: Say) -> None:
    """Make a copy a data path of its own: a broker starts with it without a replica store. NsqtwError, OSError."""
    directory = os.path.abspath(data_path)
    Owner.of(directory).become()
    lock = lock_data_path(directory)
    try:
        state = read_state(directory)
        if state is None:
            raise OptionError(f"{directory} is no copy of a data set")
        if not (state.checkpoint_lsn and state.is_trusted):
            raise ReplicaError(
                f"{directory} is the copy of a standby, or may lack messages: detach the data path of the last owner, "
                "after a clean stop"
            )
        remove_state(directory)
        say(f"{directory} is a data path of its own")
    finally:
        os.close(lock)


def status(store_name: str) -> list[Mapping[str, object]]:
    """Return a row for the owner and each standby. NsqtwError."""
    store = open_store(store_name)
    try:
        data_set = _data_set(store)
        owner = {
            "role": "owner" if data_set.owner and not data_set.is_released else "released",
            "address": data_set.address,
            "identity": data_set.owner,
            "epoch": data_set.epoch,
            "lsn": data_set.lsn,
            "behind": 0,
            "seconds": round(data_set.lease_left, 1),
        }
        standbys = [
            {
                "role": "standby",
                "address": standby.address,
                "identity": standby.identity,
                "epoch": data_set.epoch,
                "lsn": standby.lsn,
                "behind": max(0, data_set.lsn - standby.lsn),
                "seconds": round(standby.seconds_ago, 1),
            }
            for standby in store.standbys()
            if standby.identity != data_set.owner or data_set.is_released
        ]
        return [owner, *standbys]
    finally:
        store.close()


def _data_set(store: IReplicaStore) -> DataSet:
    data_set = store.data_set()
    if data_set is None:
        raise NoDataSet("the replica store has no such data set: 'nsqtw replicate init' creates it")
    return data_set


def _opened(directory: str) -> IBackend:
    """Open the backend of a data path, whatever it is. BackendError."""
    manifest = read_manifest(directory)
    return open_backend(Options(backend=manifest.backend if manifest is not None else "disk"), directory)


def _complain(level: str, text: str, /, **fields: object) -> None:
    complain(f"nsqtw replicate: {text.format(**fields)}")

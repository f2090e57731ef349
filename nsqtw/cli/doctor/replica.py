"""Checks of a replica store: whether it can be reached, keeps what it acknowledges, and has an owner and a standby."""

from __future__ import annotations

from collections.abc import Iterator

from nsqtw.cli.doctor.local import CheckSubject, Finding
from nsqtw.errors import NsqtwError
from nsqtw.replication.status import SILENT_SECONDS
from nsqtw.tools.replicate import open_store

_REMEDY = "see docs/how-to/high-availability.md"


def check_replica_store(description: str) -> Iterator[Finding]:
    """Return findings about a replica store, as `--replicate` names it."""
    subject = CheckSubject("replica store", description.partition(":")[0])
    try:
        store = open_store(description)
        try:
            data_set = store.data_set()
            for finding in store.health():
                text = f"{finding.name}: {finding.text}"
                yield subject.ok(text) if finding.is_good else subject.warning(text, _REMEDY)
            if data_set is None:
                yield subject.error("it has no such data set", "create it with 'nsqtw replicate init'")
                return
            is_owned = data_set.lease_left > 0
            text = f"data set {data_set.name}: owner {data_set.address}" if is_owned else "no broker owns the data set"
            yield subject.ok(text) if is_owned else subject.error(text, "start a broker with --replicate")
            running = [one for one in store.standbys() if one.seconds_ago <= SILENT_SECONDS]
            count = sum(one.identity != data_set.owner for one in running)
            text = f"standbys that run: {count}"
            yield subject.ok(text) if count else subject.warning(text, "start a second broker with --replicate")
        finally:
            store.close()
    except NsqtwError as error:
        yield subject.error(str(error), "correct the file that --replicate names, or start the server")

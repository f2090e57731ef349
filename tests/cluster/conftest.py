"""Clusters of processes: two nsqlookupds, and two nsqds that are registered at both."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

from nsqtw.cluster.cluster import Cluster
from tests.process import LookupdProcess, NsqdProcess, wait_until
from tests.wire import HOST


@attrs.frozen
class Nodes:
    """The processes, and their HTTP addresses."""

    lookupds: tuple[LookupdProcess, ...]
    nsqds: tuple[NsqdProcess, ...]

    @property
    def lookupd_addresses(self) -> list[str]:
        return [f"{HOST}:{process.http_port}" for process in self.lookupds]

    @property
    def nsqd_addresses(self) -> list[str]:
        return [f"{HOST}:{process.http_port}" for process in self.nsqds]

    def registered(self, topic: str, *channels: str) -> None:
        """Wait until both nsqlookupds know that all nsqds have the topic."""
        addresses = sorted(f"{HOST}:{process.tcp_port}" for process in self.nsqds)
        for lookupd in self.lookupds:
            wait_until(lambda lookupd=lookupd: lookupd.producers(topic) == addresses, "the topic is registered")

    def cluster(self, reactor: object, *, through_lookupds: bool = True) -> Cluster:
        """Return the cluster, found through the nsqlookupds or with the addresses of the nsqds."""
        if through_lookupds:
            return Cluster(reactor, lookupds=self.lookupd_addresses)
        return Cluster(reactor, nsqds=self.nsqd_addresses)


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Processes for all tests, which use topics of their own."""
    directory = tmp_path_factory.mktemp("cluster")
    lookupds = tuple(LookupdProcess(directory / f"lookupd{number}") for number in range(2))
    flags = [f"--lookupd-tcp-address={HOST}:{lookupd.tcp_port}" for lookupd in lookupds]
    flags += [f"--broadcast-address={HOST}", "--e2e-processing-latency-percentile=0.99,0.5"]
    nsqds = tuple(NsqdProcess(directory / f"nsqd{number}", *flags) for number in range(2))
    processes = (*lookupds, *nsqds)
    try:
        for process in processes:
            process.start()
        yield Nodes(lookupds, nsqds)
    finally:
        for process in processes:
            process.close()
    for process in processes:
        process.assert_no_traceback()

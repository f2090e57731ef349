"""Nsqadmins as processes, and a cluster for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from nsqtw.auth.secret_hash import Recipe
from tests.admin.process import AdminProcess
from tests.process import LookupdProcess, NsqdProcess, wait_until
from tests.wire import HOST

StartAdmin = Callable[..., AdminProcess]


@attrs.frozen
class Nodes:
    """One nsqlookupd and two nsqds."""

    lookupd: LookupdProcess
    nsqds: tuple[NsqdProcess, NsqdProcess]

    @property
    def flags(self) -> list[str]:
        """Flags of an nsqadmin for the cluster, through the nsqlookupd."""
        return [f"--lookupd-http-address={HOST}:{self.lookupd.http_port}"]

    @property
    def nsqd_flags(self) -> list[str]:
        """Flags of an nsqadmin for the nsqds."""
        return [f"--nsqd-http-address={address}" for address in self.addresses]

    @property
    def addresses(self) -> list[str]:
        return [f"{HOST}:{nsqd.http_port}" for nsqd in self.nsqds]

    def prepare(self, topic: str, *channels: str, messages: int = 0) -> None:
        """Create a topic with channels on both nsqds, and publish messages to each."""
        for nsqd in self.nsqds:
            nsqd.create(topic, *channels)
            if messages:
                nsqd.publish(topic, [b"x"] * messages)
        addresses = sorted(f"{HOST}:{nsqd.tcp_port}" for nsqd in self.nsqds)
        wait_until(lambda: self.lookupd.producers(topic) == addresses, "the topic is registered")


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Processes for all tests, which use topics of their own."""
    directory = tmp_path_factory.mktemp("nodes")
    lookupd = LookupdProcess(directory / "lookupd")
    flags = [f"--lookupd-tcp-address={HOST}:{lookupd.tcp_port}", f"--broadcast-address={HOST}"]
    nsqds = (NsqdProcess(directory / "nsqd0", *flags), NsqdProcess(directory / "nsqd1", *flags))
    processes = (lookupd, *nsqds)
    try:
        for process in processes:
            process.start()
        yield Nodes(lookupd, nsqds)
    finally:
        for process in processes:
            process.close()
    for process in processes:
        process.assert_no_traceback()


@pytest.fixture(scope="package")
def admin(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminProcess]:
    """An nsqadmin with the original's defaults, for tests that do not change it."""
    process = AdminProcess(tmp_path_factory.mktemp("admin"), *nodes.flags)
    process.start()
    yield process
    process.close()
    process.assert_no_traceback()


@pytest.fixture
def start(nodes: Nodes, tmp_path: Path) -> Iterator[StartAdmin]:
    """Start an nsqadmin with more flags; without any address it is for the cluster."""
    started: list[AdminProcess] = []

    def start_one(*flags: str) -> AdminProcess:
        has_address = any("-http-address" in flag.removeprefix("--http-address") for flag in flags)
        process = AdminProcess(tmp_path / f"admin{len(started)}", *([] if has_address else nodes.flags), *flags)
        started.append(process)
        process.start()
        return process

    yield start_one
    for process in started:
        process.close()
    for process in started:
        process.assert_no_traceback()


USERS = {
    "alice": ("alice's secret", '".*"', ("admin", "publish", "subscribe")),
    "paul": ("paul's secret", '".*"', ("publish",)),
    "rita": ("rita's secret", '".*"', ("subscribe",)),
    "olga": ("olga's secret", '"^orders$"', ("admin",)),
    "nemo": ("nemo's secret", '"^nothing$"', ()),
}
"""Name, secret, topics and permissions of the users of `users_file`."""


@pytest.fixture(scope="session")
def users_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of grants with USERS."""
    path = tmp_path_factory.mktemp("users") / "users.toml"
    recipe = Recipe.fresh()
    clients = []
    for name, (secret, topics, permissions) in USERS.items():
        clients.append(f'[[client]]\nidentity = "{name}"\nsecret = "{recipe.line(secret.encode())}"\n')
        if permissions:
            listed = ", ".join(f'"{permission}"' for permission in permissions)
            clients.append(f"[[client.grant]]\ntopic = {topics}\npermissions = [{listed}]\n")
    path.write_text("".join(clients))
    path.chmod(0o600)
    return str(path)

"""
``python -m tests.bench.takeover``: the time from the SIGKILL of an owner to the first delivery by its standby.

Two brokers have one data set, with a backlog and with rows of deferred messages. The owner is killed again and again; a
consumer that tries both addresses subscribes as soon as one of them answers. The killed broker is started again, and
the next kill comes when it has copied everything.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

from tests.process import ReservedPort, wait_until
from tests.replication.servers import PostgresPair
from tests.wire import Client, Closed

from . import report
from .server import default_executable

TOPIC, CHANNEL, LATER = "backlog", "ch1", "later"
_BODY_BYTES = 200
_IN_MPUB = 2000
_PATIENCE_SECONDS = 120.0
_LOOK_AGAIN_SECONDS = 0.002


class Replica:
    """
    One of the two brokers, on its own data path and ports.
    """

    def __init__(self, executable: Path, folder: Path, file: Path) -> None:
        self._folder = folder
        self._ports = ReservedPort(), ReservedPort()
        self.tcp_port, self.http_port = (port.number for port in self._ports)
        folder.mkdir()
        self._command = [
            str(executable),
            f"--data-path={folder}",
            f"--tcp-address=127.0.0.1:{self.tcp_port}",
            f"--http-address=127.0.0.1:{self.http_port}",
            "--broadcast-address=127.0.0.1",
            f"--replicate=postgres:{file}",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder.parent / f"{self._folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def state(self) -> dict[str, object]:
        """
        What /v2/replica says; empty when nothing answers.
        """
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/v2/replica") as answer:
            document: dict[str, object] = json.load(answer)
            return document
        return {}

    @property
    def is_owner(self) -> bool:
        """
        Whether it serves.
        """
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/readyz"):
            return True
        return False

    @property
    def is_copied(self) -> bool:
        """
        Whether it is a standby that has everything.
        """
        state = self.state()
        return state.get("role") == "standby" and state["owner"] != "" and state["behind_transactions"] == 0


def fill(broker: Replica, backlog_bytes: int, rows: int) -> None:
    """
    Publish the backlog, and messages that are deferred for a day.
    """
    body = b"x" * _BODY_BYTES
    for name in (TOPIC, LATER):
        with Client(broker.tcp_port) as client:
            client.sub(name, CHANNEL)
    with Client(broker.tcp_port) as client:
        for _ in range(backlog_bytes // (_BODY_BYTES * _IN_MPUB)):
            client.mpub(TOPIC, [body] * _IN_MPUB)
        for start in range(0, rows, 1000):
            client.send(b"".join(dpub(LATER, 3_000_000 + start + n, body) for n in range(min(1000, rows - start))))
            for _ in range(min(1000, rows - start)):
                client.frame()


def dpub(topic: str, delay_ms: int, body: bytes) -> bytes:
    return b"DPUB %s %d\n" % (topic.encode(), delay_ms) + len(body).to_bytes(4, "big") + body


def first_delivery(brokers: list[Replica]) -> float:
    """
    Wait for a message from either broker; when it came. It is left in flight.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for broker in brokers:
            with suppress(OSError, Closed), Client(broker.tcp_port) as client:
                client.sub(TOPIC, CHANNEL, 1)
                client.message()
                return time.monotonic()
        time.sleep(_LOOK_AGAIN_SECONDS)
    raise TimeoutError("nobody took over")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.takeover", description=__doc__)
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="our broker (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=50, help="default: %(default)s")
    parser.add_argument("--backlog", type=int, default=1000, metavar="MB", help="default: %(default)s")
    parser.add_argument("--rows", type=int, default=100_000, help="deferred messages (default: %(default)s)")
    options = parser.parse_args(argv)
    print(report.machine())
    servers = PostgresPair()
    seconds = []
    with tempfile.TemporaryDirectory(prefix="nsqtw-takeover-") as name:
        folder = Path(name)
        file = folder / "replica.toml"
        brokers = [Replica(options.nsqd, folder / one, file) for one in ("a", "b")]
        try:
            servers.start()
            file.write_text(f'dsn = "{servers.dsn}"\n')
            file.chmod(0o600)
            nsqtw = options.nsqd.with_name("nsqtw")
            init = [nsqtw, "replicate", "init", f"postgres:{file}", f"--data-path={folder / 'a'}"]
            subprocess.run(init, check=True, capture_output=True)
            brokers[0].start()
            wait_until(lambda: brokers[0].is_owner, "an owner")
            began = time.monotonic()
            fill(brokers[0], options.backlog * 1_000_000, options.rows)
            print(f"filled in {time.monotonic() - began:.1f} s")
            began = time.monotonic()
            brokers[1].start()
            wait_until(lambda: brokers[1].is_copied, "a copy", _PATIENCE_SECONDS)
            print(f"copied to an empty data path in {time.monotonic() - began:.1f} s")
            for number in range(options.kills):
                owner, standby = brokers if brokers[0].is_owner else brokers[::-1]
                wait_until(partial(getattr, standby, "is_copied"), "a copy", _PATIENCE_SECONDS)
                killed = time.monotonic()
                owner.kill()
                seconds.append(first_delivery(brokers) - killed)
                print(f"{number + 1}: {seconds[-1]:.2f} s", flush=True)
                owner.start()
        finally:
            for broker in brokers:
                broker.kill()
            servers.close()
    print(f"median {median(seconds):.2f} s, worst {max(seconds):.2f} s of {len(seconds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

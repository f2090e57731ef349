"""The broker of the demo, a process of its own, and the requests of the demo to its HTTP API."""

import json
import random
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from contrib.demo.children import Child
from contrib.demo.errors import DemoError

HOST = "127.0.0.1"
#: Below the range that the system takes ports of outgoing connections from (32768 up on Linux). A port up
#: there may be gone when the broker wants it back after the kill.
_PORTS = range(20_000, 32_000)
_START_SECONDS = 30
_POLL_SECONDS = 0.02
_LISTENING = re.compile(r"\] \S+ \S+ INFO: (TCP|HTTP): listening on \S+:(\d+)$", re.MULTILINE)


class Broker:
    """One broker with its data in `folder`; may be killed and started again, ports and data stay."""

    def __init__(self, executable: Path, folder: Path, flags: Sequence[str] = ()) -> None:
        self._executable = executable
        self._folder = folder
        self._flags = flags
        self._log = folder / "nsqd.log"
        self._child: Child | None = None
        self.tcp_port, self.http_port = _free_ports(2)
        (folder / "data").mkdir()

    @property
    def tcp(self) -> str:
        return f"{HOST}:{self.tcp_port}"

    @property
    def http(self) -> str:
        return f"{HOST}:{self.http_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it listens. Raises DemoError if that does not happen."""
        seen = self._log.stat().st_size if self._log.exists() else 0
        command: list[str | Path] = [
            self._executable,
            f"--tcp-address={self.tcp}",
            f"--http-address={self.http}",
            f"--broadcast-address={HOST}",
            f"--data-path={self._folder / 'data'}",
            *self._flags,
        ]
        try:
            self._child = Child("the broker", command, self._log)
        except OSError as failure:
            raise DemoError(f"cannot start the broker {self._executable}: {failure.strerror}") from None
        expected = {("TCP", str(self.tcp_port)), ("HTTP", str(self.http_port))}
        deadline = time.monotonic() + _START_SECONDS
        while not expected <= set(_LISTENING.findall(self._log.read_text("utf-8", "replace")[seen:])):
            self._child.must_run()
            if time.monotonic() > deadline:
                raise DemoError(f"the broker does not listen:\n{self._child.last_words()}")
            time.sleep(_POLL_SECONDS)

    def must_run(self) -> None:
        if self._child is not None:
            self._child.must_run()

    def kill(self) -> None:
        """SIGKILL."""
        assert self._child is not None
        self._child.kill()
        self._child = None

    def stop(self) -> int | None:
        """SIGTERM; the exit code, None when it does not run."""
        return self._child.stop() if self._child is not None else None

    def create(self, topic: str, channels: Sequence[str]) -> None:
        """A topic and its channels, so that each channel gets the first message already."""
        self._call("POST", f"/topic/create?topic={topic}")
        for channel in channels:
            self._call("POST", f"/channel/create?topic={topic}&channel={channel}")

    def retain(self, topic: str, time: str) -> None:
        """Keep the messages of a topic for so long, finished or not, so that they can be read by position."""
        self._call("POST", f"/v2/topic/retention?topic={topic}&time={time}")

    def publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Publish messages in one request, in this order."""
        parts = [len(bodies).to_bytes(4, "big")]
        for body in bodies:
            parts += [len(body).to_bytes(4, "big"), body]
        self._call("POST", f"/mpub?topic={topic}&binary=true", b"".join(parts))

    def waiting(self, topic: str, limit: int) -> list[str]:
        """Return the bodies of the first messages that wait for a channel of the topic."""
        found = json.loads(self._call("GET", f"/v2/topic/messages?topic={topic}&limit={limit}"))
        return [message["body"] for message in found["messages"]]

    def left(self, topic: str) -> int:
        """How many messages of `topic` wait or are out with consumers, all channels together."""
        stats = json.loads(self._call("GET", f"/stats?format=json&topic={topic}"))
        left = 0
        for found in stats["topics"]:
            left += found["depth"]
            for channel in found["channels"]:
                left += channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]
        return left

    def _call(self, method: str, path: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"http://{self.http}{path}", method=method, data=data)
        try:
            with urllib.request.urlopen(request, timeout=_START_SECONDS) as answer:
                body: bytes = answer.read()
                return body
        except (OSError, urllib.error.URLError) as failure:
            raise DemoError(f"the broker does not answer {method} {path}: {failure}") from None


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found

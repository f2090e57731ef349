"""
``python -m tests.bench.deferred``: what a million deferred messages cost.

Messages of 200 B are published with DPUB on a topic with one channel, an hour ahead. Then: memory; the time of /stats;
a clean stop and a start; a SIGKILL and a start; how long the broker lets a /ping wait meanwhile. With ``--spread`` each
has a delay of its own, a second long between first and last, so they fall due at once: how long a /ping waits then, and
how long it takes until a consumer has got all of them.
"""

import argparse
import shlex
import socket
import sys
import threading
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM
from statistics import median

from . import plan, report, wire
from .errors import BenchError, BrokerFailed, WrongCount
from .plan import Consuming, Plan
from .server import Broker, default_executable, directory, started
from .watch import MB, Watch

TOPIC, CHANNEL = "deferred", "ch1"
_BETWEEN_PINGS_SECONDS = 0.01
"""So that asking how long it takes does not become the load."""
_LOOK_AGAIN_SECONDS = 0.1
"""Between two looks at something that takes seconds."""
_SETTLING_SECONDS = 2.0
"""A broker saves once a second: what a start leaves to be done is done after that."""
HOUR_MS = 3_600_000
_UNANSWERED = 500
_STATS_ROUNDS = 11


class Pinger:
    """
    Asks for /ping all the time; the longest wait shows how long the broker did nothing else.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.waits: list[float] = []

    def __enter__(self) -> "Pinger":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            start = time.monotonic()
            with socket.create_connection(("127.0.0.1", self._broker.http_port)) as connection:
                connection.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
                while connection.recv(4096):
                    pass
            self.waits.append(time.monotonic() - start)
            time.sleep(_BETWEEN_PINGS_SECONDS)

    def __str__(self) -> str:
        waits = sorted(self.waits)
        return f"/ping waits {waits[-1] * 1000:.0f} ms at most, {median(waits) * 1000:.1f} ms as a rule"


def publish(broker: Broker, count: int, delays: range) -> float:
    """
    DPUBs with the delays in turn, a few hundred of them unanswered at any time; the seconds it took.
    """
    start = time.monotonic()
    body = wire.body(plan.BODY_BYTES)
    with socket.create_connection(("127.0.0.1", broker.tcp_port)) as connection:
        connection.sendall(wire.identify())
        _answers(connection, 1)
        for first in range(0, count, _UNANSWERED):
            some = range(first, min(first + _UNANSWERED, count))
            connection.sendall(b"".join([wire.dpub(TOPIC, delays[n % len(delays)], body) for n in some]))
            _answers(connection, len(some))
    return time.monotonic() - start


def _answers(connection: socket.socket, count: int) -> None:
    received = b""
    while count:
        data = connection.recv(65536)
        if not data:
            raise BrokerFailed("the broker closed a connection")
        received += data
        start = 0
        while (frame := wire.next_frame(received, start, len(received))) is not None:
            start += len(frame.data) + 8
            if frame.data == wire.HEARTBEAT:
                continue
            if frame.kind != wire.RESPONSE:
                raise BrokerFailed(f"the broker answered {frame.data[:80]!r}")
            count -= 1
        received = received[start:]


def stats_seconds(broker: Broker, count: int) -> float:
    """
    How long /stats takes, which must know of all messages.
    """
    seconds = []
    for _ in range(_STATS_ROUNDS):
        start = time.monotonic()
        depths = broker.depths(TOPIC)
        seconds.append(time.monotonic() - start)
        if sum(depths.channels[CHANNEL]) != count:
            raise WrongCount(f"{count} messages are deferred, but /stats says {depths}")
    return median(seconds)


def _state(broker: Broker, count: int) -> str:
    stats_ms = stats_seconds(broker, count) * 1000
    now, most = (size / MB for size in broker.resident_bytes())
    return f"{now:.1f} MB resident, {most:.1f} MB at most, /stats in {stats_ms:.1f} ms"


def _until_saved(broker: Broker) -> None:
    """
    Until positions.db's log has not grown for a while.
    """
    size, since = -1, time.monotonic()
    while time.monotonic() < since + 3:
        now = sum(file.stat().st_size for file in broker.data_path.glob("positions.db*"))
        if now != size:
            size, since = now, time.monotonic()
        time.sleep(_LOOK_AGAIN_SECONDS)


def hour(executable: Path, flags: list[str], count: int) -> None:
    """
    All of them an hour ahead.
    """
    with directory() as workspace:
        with started(executable, flags, workspace) as broker:
            broker.create(TOPIC, (CHANNEL,))
            print(f"empty: {broker.resident_bytes()[0] / MB:.1f} MB resident", flush=True)
            with Pinger(broker) as pinger:
                seconds = publish(broker, count, range(HOUR_MS, HOUR_MS + 1))
                print(f"{count:,} DPUBs in {seconds:.1f} s; {pinger}")
                _until_saved(broker)
            print(_state(broker, count), flush=True)
            print(f"clean stop in {broker.end(SIGTERM):.2f} s", flush=True)
        for ending in ("a clean stop", "SIGKILL"):
            start = time.monotonic()
            with started(executable, flags, workspace) as broker:
                broker.ask("GET", f"/stats?format=json&topic={TOPIC}")
                print(f"/stats {time.monotonic() - start:.2f} s after the start behind {ending}; ", end="")
                print(_state(broker, count), flush=True)
                time.sleep(_SETTLING_SECONDS)
                print(f"a while later: {_state(broker, count)}", flush=True)
                broker.end(SIGKILL)


def spread(executable: Path, flags: list[str], count: int, seconds: int) -> None:
    """
    A delay of its own for each, all due in one second after `seconds`.
    """
    with directory() as workspace, started(executable, flags, workspace) as broker:
        broker.create(TOPIC, (CHANNEL,))
        delays = range(seconds * 1000, seconds * 1000 + 1000)
        print(f"{count:,} DPUBs in {publish(broker, count, delays):.1f} s", flush=True)
        _until_saved(broker)
        print(_state(broker, count), flush=True)
        with Pinger(broker) as pinger:
            while broker.depths(TOPIC).channels[CHANNEL][2]:
                time.sleep(_LOOK_AGAIN_SECONDS)
            print(f"falling due: {pinger}; {_state(broker, count)}", flush=True)
        with Pinger(broker) as pinger:
            consuming = (Consuming(broker.tcp_port, TOPIC, CHANNEL),)
            tally = Watch(broker, 60.0, print).carry_out(Plan(broker.pid, None, consuming, count, keep_ids=False))
            print(f"{tally.received_by[0]:,} received in {tally.seconds:.1f} s; {pinger}")
        broker.settle(TOPIC, count, left=0)


def main(argv: list[str]) -> int:
    """
    Returns the exit status.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.deferred",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="the broker to watch")
    parser.add_argument("--args", default="", help="more flags for it, in one string")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--spread", type=int, metavar="SECONDS", help="delays that end in the second after so many")
    options = parser.parse_args(argv)
    flags = shlex.split(options.args)
    print(f"{shlex.join([str(options.nsqd), *flags])}\n{report.machine()}", flush=True)
    try:
        if options.spread:
            spread(options.nsqd, flags, options.messages, options.spread)
        else:
            hour(options.nsqd, flags, options.messages)
    except BenchError as error:
        print(f"deferred: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

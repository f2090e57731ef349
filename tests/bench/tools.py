"""
Cases that are driven by NSQ's own ``bench_writer`` and ``bench_reader``, programs that others know figures of.

Both open a connection for each core. The writer sends MPUBs; the reader does not stop when a backlog is finished, so
its backlog is one that it cannot finish in its time.
"""

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from .cases import Bar, Case, Figure, Size
from .errors import BrokerFailed
from .server import Broker, cpu_seconds

_OPERATIONS = re.compile(r"duration: .* - ([\d.]+)ops/s")
_CHANNEL = "ch"


def _run(tool: Path, broker: Broker, topic: str, seconds: float, *words: str) -> Figure:
    command = [str(tool), f"-nsqd-tcp-address=127.0.0.1:{broker.tcp_port}", f"-topic={topic}", f"-runfor={seconds}s"]
    start, before = time.perf_counter(), cpu_seconds(broker.pid)
    try:
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=seconds + 60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerFailed(f"{tool.name}: {error}") from error
    spent, cost = time.perf_counter() - start, cpu_seconds(broker.pid) - before
    found = _OPERATIONS.search(done.stderr)
    if done.returncode or found is None or not float(found[1]):
        raise BrokerFailed(f"{tool.name} exited with {done.returncode}: {done.stderr[-200:]}")
    return Figure(int(float(found[1]) * seconds), seconds, cost * seconds / spent, 0.0)


def tool_cases(directory: Path) -> list[Case]:
    """
    The cases of the tools in ``directory``.
    """

    def writing(size: int, batch: int) -> Callable[[Broker, str, Size], Figure]:
        def measure(broker: Broker, topic: str, length: Size) -> Figure:
            broker.create(topic, (_CHANNEL,))
            words = (f"-size={size}", f"-batch-size={batch}")
            return _run(directory / "bench_writer", broker, topic, length.seconds, *words)

        return measure

    def reading(size: int, batch: int) -> Callable[[Broker, str, Size], Figure]:
        def measure(broker: Broker, topic: str, length: Size) -> Figure:
            # Publishing for as long leaves more than is read: reading is the slower half for every broker.
            writing(size, batch)(broker, topic, Size(2 * length.seconds, 0))
            words = (f"-size={size}", f"-channel={_CHANNEL}")
            return _run(directory / "bench_reader", broker, topic, length.seconds, *words)

        return measure

    return [
        Case("tool-mpub", "bench_writer, 200 x 200 B", "in", writing(200, 200), Bar(1.2, 2.0)),
        Case("tool-sub", "bench_reader, 200 B", "out", reading(200, 200), Bar(1.5, 2.0)),
        Case("tool-mpub-1k", "bench_writer, 100 x 1 KB", "in", writing(1024, 100), Bar(1.2, 1.5)),
        Case("tool-sub-1k", "bench_reader, 1 KB", "out", reading(1024, 100), Bar(1.5, 2.0)),
    ]

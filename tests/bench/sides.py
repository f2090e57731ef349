"""
The brokers that are compared, and one measurement of one of them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .cases import Case, Figure, Size
from .errors import BenchError
from .server import Broker, running


@dataclass(frozen=True)
class Side:
    """
    One of the brokers compared: its executable and the flags it gets besides addresses and data path.
    """

    name: str
    executable: Path
    flags: list[str]


@contextmanager
def started(side: Side) -> Iterator[Broker]:
    """
    A broker of this side for one measurement. `BenchError` when it cannot be started.
    """
    # What the run before left in the page cache must not be written during this one.
    os.sync()
    with running(side.executable, side.flags) as broker:
        yield broker


def measure(case: Case, side: Side, broker: Broker | None, topic: str, size: Size) -> Figure:
    """
    One run on one side, with the shared ``broker`` or else with one of its own. `BenchError` when it fails.
    """
    try:
        if broker is not None:
            figure = case.measure(broker, topic, size)
            broker.delete(topic)
            return figure
        with started(side) as own:
            return case.measure(own, topic, size)
    except BenchError as error:
        raise BenchError(f"{case.name}, {side.name}: {error}") from error

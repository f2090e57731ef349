"""
``python -m tests.bench.endurance --case NAME``: a broker's memory and disk over a long run.

backlog   messages of 200 B pile up on a topic with 4 channels, then all channels drain
steady    single PUBs at full rate with a consumer keeping up
stall     RDY 2500 and messages of 1 MB for a reader that reads nothing for a while
poison    one message requeued for ever and one deferred by an hour, while others pass

The exit status is 1 if a message is lost or repeated, or a bound is exceeded.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from . import plan, poison, report
from .cases import PIPELINED
from .errors import BenchError
from .plan import Consuming, Plan
from .server import Broker, default_executable, running
from .watch import MB, Watch

_LARGE_BODY_BYTES = 1_048_576
_LARGE_PER_MPUB = 4
_STEADY_MOST_WAITING = 50_000
_SHOWN_LINES = 18


@dataclass(frozen=True)
class Verdict:
    """
    A measured value and the most it may be, both in MB.
    """

    what: str
    value: float
    bound: float

    @property
    def good(self) -> bool:
        return self.value <= self.bound

    def __str__(self) -> str:
        return f"{'ok  ' if self.good else 'OVER'}  {self.what}: {self.value:.1f} MB, bound {self.bound:.0f} MB"


@dataclass(frozen=True)
class Length:
    messages: int
    seconds: float


def _show(line: str) -> None:
    print(line, flush=True)


def backlog(broker: Broker, length: Length) -> list[Verdict]:
    """
    The log holds each message once, however many channels there are, and memory does not grow with it.
    """
    topic, channels = "backlog", ("ch1", "ch2", "ch3", "ch4")
    broker.create(topic, channels)
    watch = Watch(broker, 5.0, _show)
    filling = replace(plan.mpub(broker.tcp_port, topic, 2), limit=length.messages)
    published = watch.carry_out(Plan(broker.pid, filling)).published
    broker.settle(topic, published, left=published)
    full = watch.sample(f"{published:,} messages wait in each of {len(channels)} channels")
    resident_full = watch.most_resident
    consuming = tuple(Consuming(broker.tcp_port, topic, channel) for channel in channels)
    watch.carry_out(Plan(broker.pid, None, consuming, published))
    broker.settle(topic, published, left=0)
    watch.sample("drained")
    # 34 bytes of frame header belong to each stored body; half as much again is left to the format.
    once = published * (plan.BODY_BYTES + 34) / MB
    return [
        Verdict("most resident memory with the backlog", resident_full / MB, 150),
        Verdict("most resident memory over the whole run", watch.most_resident / MB, 150),
        Verdict("disk with the backlog", full.disk / MB, once * 1.5 + 10),
    ]


def steady(broker: Broker, length: Length) -> list[Verdict]:
    """
    Memory in the last third of the time is what it was in the first.
    """
    topic = "steady"
    broker.create(topic, ("ch1",))
    watch = Watch(broker, length.seconds / _SHOWN_LINES, _show)
    publishing = replace(plan.pub(broker.tcp_port, topic, 1, PIPELINED), seconds=length.seconds)
    consuming = (Consuming(broker.tcp_port, topic, "ch1"),)
    tally = watch.carry_out(Plan(broker.pid, publishing, consuming, backlog=_STEADY_MOST_WAITING, keep_ids=False))
    broker.settle(topic, tally.published, left=0)
    _show(f"{tally.published:,} PUBs, {tally.published / tally.seconds:,.0f} a second")
    third = max(1, len(watch.samples) // 3)
    first = median(one.resident for one in watch.samples[:third]) / MB
    last = median(one.resident for one in watch.samples[-third:]) / MB
    return [Verdict("resident memory, last third of the time", last, first * 1.1 + 5)]


def stall(broker: Broker, length: Length) -> list[Verdict]:
    """
    A reader that may have 2.5 GB in flight but does not read costs a bounded amount of memory.
    """
    topic = "stall"
    broker.create(topic, ("ch1",))
    watch = Watch(broker, 2.0, _show)
    large = plan.mpub(broker.tcp_port, topic, 1, _LARGE_PER_MPUB, _LARGE_BODY_BYTES)
    published = watch.carry_out(Plan(broker.pid, replace(large, limit=length.messages))).published
    broker.settle(topic, published, left=published)
    watch.sample(f"{published:,} messages of 1 MB wait; the reader stalls for {length.seconds:g} s")
    reader = Consuming(broker.tcp_port, topic, "ch1", body_bytes=_LARGE_BODY_BYTES)
    watch.carry_out(Plan(broker.pid, None, (reader,), published, stall_seconds=length.seconds))
    broker.settle(topic, published, left=0)
    watch.sample("drained")
    return [Verdict("most resident memory", watch.most_resident / MB, 300)]


def poisoned(broker: Broker, length: Length) -> list[Verdict]:
    """
    Two unfinished messages do not keep ten million finished ones on disk.
    """
    most_disk = poison.run(broker, length.messages, 10.0, _show)
    return [Verdict("most disk", most_disk / MB, 300)]


@dataclass(frozen=True)
class _Case:
    run: Callable[[Broker, Length], list[Verdict]]
    usual: Length


CASES = {
    "backlog": _Case(backlog, Length(1_000_000, 0)),
    "steady": _Case(steady, Length(0, 90.0)),
    "stall": _Case(stall, Length(2_500, 20.0)),
    "poison": _Case(poisoned, Length(10_000_000, 0)),
}


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.endurance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", action="append", required=True, choices=CASES, help="may be repeated")
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="the broker to watch")
    parser.add_argument("--args", default="", help="more flags for it, in one string")
    parser.add_argument("--messages", type=int, help="instead of the usual number of the case")
    parser.add_argument("--seconds", type=float, help="instead of the usual time of the case")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """
    Run the chosen cases, each with a broker of its own. Returns the exit status.
    """
    options = _arguments(argv)
    flags = shlex.split(options.args)
    _show(f"{shlex.join([str(options.nsqd), *flags])}\n{report.machine()}")
    good = True
    for name in options.case:
        case = CASES[name]
        length = Length(options.messages or case.usual.messages, options.seconds or case.usual.seconds)
        _show(f"\n{name}")
        start = time.monotonic()
        try:
            with running(options.nsqd, flags) as broker:
                verdicts = case.run(broker, length)
        except BenchError as error:
            print(f"endurance: {name}: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        for verdict in verdicts:
            _show(str(verdict))
        good = good and all(verdict.good for verdict in verdicts)
        _show(f"took {time.monotonic() - start:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

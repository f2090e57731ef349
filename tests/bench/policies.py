"""
What policies of channels cost: CPU of the core for each message that is delivered and finished.

A broker without storage and sockets has a backlog of messages with headers. A consumer with RDY 2500 finishes all that
it has in one go, which is the first column, or 300 at a time. Keys are taken in turn or at random, of 10,000. The table
is that of docs/how-to/ordering.md.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness

from .errors import WrongCount

_KEYS = 10_000
_BATCH = 200
_BODY_BYTES = 200
_READY = 2500
_FINISHED_TOGETHER = (_READY, 300)
"""The columns."""
_RANDOM = random.Random(1)


@frozen
class Case:
    """One row. `name` is the header whose value is taken from `values`, in turn or at random."""

    title: str
    policy: dict[str, Any]
    name: str
    values: Sequence[str]
    in_turn: bool = False

    def value(self, number: int) -> str:
        return self.values[number % len(self.values)] if self.in_turn else _RANDOM.choice(self.values)


_CUSTOMERS = [str(number) for number in range(_KEYS)]
_CLASSES = ["high", "normal", "low"]
CASES = (
    Case("without a policy", {}, "key", _CUSTOMERS),
    Case("`header:key`, keys in turn", {"ordered_by": "header:key"}, "key", _CUSTOMERS, in_turn=True),
    Case("`header:key`, keys at random", {"ordered_by": "header:key"}, "key", _CUSTOMERS),
    Case("`json:key`, keys in turn", {"ordered_by": "json:key"}, "key", _CUSTOMERS, in_turn=True),
    Case("`json:key`, keys at random", {"ordered_by": "json:key"}, "key", _CUSTOMERS),
    Case("`priority`, one class", {"priority": True}, "priority", ["normal"]),
    Case("`priority`, classes at random", {"priority": True}, "priority", _CLASSES),
)


def cost_us(case: Case, messages: int, together: int) -> float:
    """Return microseconds of CPU a message, of which so many are finished together."""
    core = BrokerHarness()
    channel = core.channel()
    answers: list[Exception | None] = []
    for first in range(0, messages, _BATCH):
        values = [case.value(number) for number in range(first, first + _BATCH)]
        bodies = [b'{"key":"%s","text":"' % value.encode() for value in values]
        bodies = [body.ljust(_BODY_BYTES - 2, b"x") + b'"}' for body in bodies]
        core.topic().put(bodies, 0, answers.append, [encode_headers({case.name: value}) for value in values])
        core.turn()
    channel.policies.set(case.policy)
    reader = core.reader(ready=_READY)
    finished = 0
    start = time.process_time()
    while finished < messages:
        core.broker.serve(core.now)
        count = min(together, reader.consumer.in_flight.count)
        if not count:
            raise WrongCount(f"{case.title}: {finished} of {messages} were delivered")
        reader.consumer.in_flight.next_ids(count, b"\n")
        channel.finish_next(reader.consumer, count, core.now)
        reader.frames.clear()
        finished += count
    return (time.process_time() - start) / messages * 1e6


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.policies", description=__doc__.splitlines()[1])
    parser.add_argument("--quick", action="store_true", help="a second in all; the figures mean little")
    messages = 10_000 if parser.parse_args(argv).quick else 100_000
    print(f"| | all at once | {_FINISHED_TOGETHER[1]} at a time |\n|---|---|---|")
    for case in CASES:
        costs = [min(cost_us(case, messages, together) for _ in range(2)) for together in _FINISHED_TOGETHER]
        print(f"| {case.title} | {' | '.join(f'{cost:.2f}' for cost in costs)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""
``python -m tests.bench.replication``: a broker with a copy in PostgreSQL beside one without, in one run: rates, and
what a message costs the store.

The primary and its synchronous standby run on this machine, too, and have their share of its cores.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.replication.servers import PostgresPair, PostgresServer

from . import report
from .cases import CASES, Case, Figure, Size
from .errors import BenchError
from .server import Broker, default_executable, running
from .sides import Side, measure

COLUMNS = ("mpub", "pub-64", "pub-8", "sub-1", "pass-1")
FULL, FULL_ROUNDS = Size(seconds=3.0, messages=400_000), 5
QUICK, QUICK_ROUNDS = Size(seconds=0.25, messages=10_000), 1
ALONE, COPIED = "disk", "disk, with a copy"


@dataclass(frozen=True)
class Cost:
    """
    What one run did to the store, for a message.
    """

    transactions: float
    log_bytes: float


@contextmanager
def replicated(executable: Path, servers: PostgresPair) -> Iterator[Broker]:
    """
    The owner of a new data set.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "replica.toml"
        file.write_text(f'dsn = "{servers.dsn}"\n')
        file.chmod(0o600)
        store = f"postgres:{file}"
        nsqtw = executable.with_name("nsqtw")
        init = [str(nsqtw), "replicate", "init", store, "--replace", f"--data-path={folder}"]
        done = subprocess.run(init, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(done.stderr)
        with running(executable, [f"--replicate={store}"]) as broker:
            yield broker


def measured(case: Case, broker: Broker, server: PostgresServer, topic: str, size: Size) -> tuple[Figure, Cost]:
    """
    One run on an owner.
    """
    before = counters(server)
    figure = measure(case, Side(COPIED, Path(), []), broker, topic, size)
    transactions, log_bytes = (now - was for now, was in zip(counters(server), before, strict=True))
    return figure, Cost(transactions / figure.messages, log_bytes / figure.messages)


def counters(server: PostgresServer) -> tuple[int, int]:
    """
    The transactions of the server, and the bytes of its log.
    """
    [(transactions,)] = server.execute("SELECT sum(xact_commit)::bigint FROM pg_stat_database")
    [(position,)] = server.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
    return transactions, position


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replication", description=__doc__)
    parser.add_argument("--nsqd", type=Path, default=default_executable(), help="our broker (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="rounds of each case (default: 5, quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; the figures mean little")
    options = parser.parse_args(argv)
    size, rounds = (QUICK, QUICK_ROUNDS) if options.quick else (FULL, FULL_ROUNDS)
    rounds = options.rounds or rounds
    cases = [case for case in CASES if case.name in COLUMNS]
    figures: dict[str, dict[str, list[Figure]]] = {ALONE: defaultdict(list), COPIED: defaultdict(list)}
    costs: dict[str, list[Cost]] = defaultdict(list)
    print(report.machine())
    servers = PostgresPair()
    try:
        servers.start()
        for number in range(rounds):
            for case in cases:
                topic = f"{case.name}.{number}"
                figures[ALONE][case.name].append(measure(case, Side(ALONE, options.nsqd, []), None, topic, size))
                with replicated(options.nsqd, servers) as broker:
                    figure, cost = measured(case, broker, servers.primary, topic, size)
                figures[COPIED][case.name].append(figure)
                costs[case.name].append(cost)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        servers.close()
    print(f"\n| | {ALONE}, msgs/s | {COPIED}, msgs/s | part of it | transactions a message | bytes of log a message |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        alone, copied = (median(one.rate for one in figures[side][case.name]) for side in (ALONE, COPIED))
        transactions = median(cost.transactions for cost in costs[case.name])
        log_bytes = median(cost.log_bytes for cost in costs[case.name])
        row = f"{alone:,.0f} | {copied:,.0f} | {copied / alone:.2f} | {transactions:.4f} | {log_bytes:,.0f}"
        print(f"| {case.title} | {row} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

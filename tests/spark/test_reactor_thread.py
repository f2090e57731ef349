"""One reactor for each process, and none that was left behind by a fork."""

import subprocess
import sys
import threading

from pyspark_nsq.http.reactor_thread import running_reactor

FORK = """
import os
from pyspark_nsq.errors import ForkedReactorError
from pyspark_nsq.http.reactor_thread import running_reactor

running_reactor()
child = os.fork()
if child == 0:
    try:
        running_reactor()
    except ForkedReactorError as failure:
        print(failure, flush=True)
        os._exit(7)
    os._exit(0)
_, status = os.waitpid(child, 0)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def test_it_runs_in_a_thread_of_its_own() -> None:
    reactor = running_reactor()
    called = threading.Event()
    where: list[str] = []

    def look() -> None:
        where.append(threading.current_thread().name)
        called.set()

    reactor.callFromThread(look)
    assert called.wait(60)
    assert threading.current_thread().name not in where
    assert reactor is running_reactor()


def test_a_forked_process_is_told_instead_of_waiting_for_ever() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60)
    assert (7, "") == (done.returncode, done.stderr)
    assert "was forked from" in done.stdout


def test_importing_the_package_loads_neither_twisted_nor_pyarrow() -> None:
    code = "import sys, pyspark_nsq; print([m for m in ('twisted', 'treq', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (0, "[]\n") == (done.returncode, done.stdout)

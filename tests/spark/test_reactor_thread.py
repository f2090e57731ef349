"""One reactor for each process, and none that was left behind by a fork."""

import subprocess
import sys
import threading
from pathlib import Path

from pyspark_nsq.http.reactor_thread import running_reactor

PROJECT = Path(__file__).parents[2]
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
    assert (done.returncode, done.stderr) == (7, "")
    assert "was forked from" in done.stdout


STOPPED = """
import pyarrow as pa
from pyspark_nsq.http.reactor_thread import begin, running_reactor
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.packing import deferred_request
from pyspark_nsq.sink.publisher import Publisher
from tests.spark.fake_nsqd import FakeNsqd, Misbehaviour
from twisted.internet.defer import Deferred

async def wait_for_ever():
    await Deferred()

with FakeNsqd() as nsqd:
    nsqd.script.append(Misbehaviour.SILENCE)
    options = SinkOptions.parse({"nsqdHttpAddresses": nsqd.address, "requestTimeoutMs": "3600000"})
    publisher = Publisher(options)
    publisher.submit(deferred_request("t", b"a", 1))
    question = begin(wait_for_ever)
    running_reactor().callFromThread(running_reactor().stop)
    for work in (publisher.flush, question.result, lambda: Publisher(options)):
        try:
            work()
        except Exception as failure:
            print(type(failure).__name__, failure)
"""

DEAD = """
import sys, threading
from pyspark_nsq.http import reactor_thread
from twisted.internet import reactor

reactor.run = lambda **_: sys.exit("no more threads")
try:
    reactor_thread.running_reactor()
except Exception as failure:
    print(type(failure).__name__, failure)
"""

LOCKED = """
import os
from pyspark_nsq.http import reactor_thread

reactor_thread._lock.acquire()  # as another thread of the parent's may
child = os.fork()
if child == 0:
    reactor_thread.running_reactor()
    os._exit(7)
_, status = os.waitpid(child, 0)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""

USED = """
import threading
from pyspark_nsq.log.client import LogClient
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.packing import deferred_request
from pyspark_nsq.sink.publisher import Publisher
from tests.spark.fake_nsqd import FakeNsqd

with FakeNsqd() as nsqd:
    with Publisher(SinkOptions.parse({"nsqdHttpAddresses": nsqd.address})) as publisher:
        publisher.submit(deferred_request("t", b"a", 1))
    assert [("t", b"a", 1)] == nsqd.deferred
    LogClient(LogOptions.parse({"replay": "log", "nsqdHttpAddresses": nsqd.address, "topic": "t"}))
print([thread.name for thread in threading.enumerate() if not thread.daemon])
"""


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=PROJECT)


def test_a_reactor_that_is_stopped_ends_the_wait_with_an_error() -> None:
    done = run(STOPPED)
    said = "ReactorStoppedError Twisted's reactor has stopped, by other code in this process"
    assert done.stdout.count(said) == 3, done


def test_a_reactor_that_does_not_start_is_told() -> None:
    done = run(DEAD)
    assert "ReactorStoppedError Twisted's reactor has stopped: SystemExit('no more threads')" in done.stdout, done


def test_a_fork_while_another_thread_starts_the_reactor() -> None:
    done = run(LOCKED)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_a_process_that_used_the_connector_ends_by_itself() -> None:
    """Only daemons are left; "localhost" is looked up by a thread of the reactor's pool, which is one of them."""
    done = run(USED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['MainThread']\n", "")


def test_importing_the_package_loads_neither_twisted_nor_pyarrow() -> None:
    code = "import sys, pyspark_nsq; print([m for m in ('twisted', 'treq', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n")

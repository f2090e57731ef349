"""
A standalone cluster of Spark on this machine: a master and two workers as processes, started with the commands of
docs/how-to/spark-clusters.md. Linux only.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow
import pyspark

from tests.process import wait_until
from tests.spark.fast_java import OPTIONS
from tests.wire import HOST

LONG = 240
_PAGE = (Path(__file__).parents[2] / "docs/how-to/spark-clusters.md").read_text("utf-8")
_BLOCKS = re.findall(r"^```sh\n(.*?)^```$", _PAGE, re.DOTALL | re.MULTILINE)
_COMMANDS = "".join(_BLOCKS).replace("\\\n", "").splitlines()
_MASTER = "spark://10.0.0.5:7077"
#: More slots than there are tasks at any moment, so that each runs at once wherever it has to go.
_CORES = 8
_ENVIRON = {
    "SPARK_LOCAL_IP": HOST,
    "SPARK_DAEMON_JAVA_OPTS": OPTIONS,
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_LAUNCHER_OPTS": OPTIONS,
    "SPARK_SUBMIT_OPTS": OPTIONS,
}
_SETTINGS = {
    "spark.driver.extraJavaOptions": OPTIONS,
    "spark.executor.extraJavaOptions": OPTIONS,
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    # Rows get to a sink before the task has read its last one.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    # No task starts before both workers can have it.
    "spark.cores.max": str(2 * _CORES),
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{LONG}s",
}
_CONF = [f"--conf={name}={value}" for name, value in _SETTINGS.items()]
#: The job of the page.
_JOB = "archive --nsqd-http-address 10.0.0.7:4151 --topic clicks --output hdfs:///lake"


class Program:
    """A shell command, and all that it starts: they are in a session of their own. `log`: what it says."""

    def __init__(self, command: str, environ: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                env=environ,
                cwd=log.parent,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def await_said(self, pattern: str) -> str:
        """Wait until it has said so; what the group in `pattern` matches."""
        found: list[str] = []

        def heard() -> bool:
            self.must_run()
            found[:] = re.findall(pattern, self.said())
            return bool(found)

        wait_until(heard, pattern, seconds=LONG)
        return found[0]

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def must_run(self) -> None:
        """Fails the test when it has ended."""
        assert self._process.poll() is None, self.said()[-5000:]

    def finish(self) -> None:
        """Wait for its end, which must be a good one."""
        assert self._process.wait(LONG) == 0, self.said()[-5000:]

    def kill(self) -> None:
        """SIGKILL, also to all that it started."""
        self._process.kill()
        self._process.wait()
        self.kill_started()

    def kill_started(self) -> None:
        """SIGKILL to all that it started, but not to itself."""
        while started := _session(self._process.pid) - {self._process.pid}:
            for process in started:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


class Cluster:
    """Everything of it is below `folder`, which is new."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._environ = _exported(folder, _bare_python(folder / "python"))
        self._programs: list[Program] = []
        self._url = ""
        self.workers: list[Program] = []
        self.work = [folder / f"worker{number}" for number in range(2)]
        """The folder of each worker; its executors work below it."""

    def start(self) -> None:
        """The master and the workers. A job has one executor at each worker."""
        self._run("zip", _command("zipfile", {})).finish()
        master = self._run(
            "master", f"{_command('deploy.master.Master', {'10.0.0.5': HOST, '7077': '0'})} --webui-port 0"
        )
        self._url = master.await_said(r"Starting Spark master at (spark://\S+)")
        for folder in self.work:
            here = {"10.0.0.6": HOST, "--cores 4": f"--cores {_CORES} --webui-port 0", "4g": "1g"}
            here |= {"/var/lib/spark/work": str(folder), _MASTER: self._url}
            self.workers.append(self._run(folder.name, _command("deploy.worker.Worker", here)))

    def submit(self, *job: str) -> Program:
        """A driver: `job` is its program's file, and what it is given."""
        return self._submit("job.py", {"job.py": shlex.join([*_CONF, *job])})

    def submit_job(self, *words: str) -> Program:
        """A driver that runs `nsqtw-spark`: `words` is its command line."""
        program = '"$(PYTHONPATH= nsqtw-spark program)"'
        return self._submit(program, {program: f"{shlex.join(_CONF)} {program}", _JOB: shlex.join(words)})

    def _submit(self, part: str, here: Mapping[str, str]) -> Program:
        return self._run("driver", _command(part, {_MASTER: self._url, **here}))

    def close(self) -> None:
        """Leave no process behind."""
        for program in reversed(self._programs):
            program.kill()

    def _run(self, name: str, command: str) -> Program:
        program = Program(command, self._environ, self._folder / f"{name}.log")
        self._programs.append(program)
        return program


@contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """A cluster that runs."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def _command(part: str, here: Mapping[str, str]) -> str:
    """The command of the page that has `part` in it, with what `here` says in place of the page's words."""
    (line,) = [line for line in _COMMANDS if part in line]
    for of_the_page, of_ours in here.items():
        assert of_the_page in line, (of_the_page, line)
        line = line.replace(of_the_page, of_ours)
    return line


def _exported(folder: Path, python: Path) -> dict[str, str]:
    """The environment, with what the page exports in `folder`; `python` runs the tasks."""
    exports = [line for line in _COMMANDS if line.startswith("export ")]
    script = "\n".join([*exports, "exec env -0"]).replace("/opt/spark/bin/python", str(python))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | _ENVIRON | {"PATH": path}
    exported = subprocess.check_output(["/bin/sh", "-e", "-c", script], env=environ, cwd=folder, text=True)
    return dict(one.split("=", 1) for one in exported.split("\0") if one)


def _bare_python(folder: Path) -> Path:
    """A Python with the packages that Spark and the connector need, but without the connector."""
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    # What is installed as a link, as the connector is for its development, is not seen from here.
    others = [Path(str(package.__file__)).parents[1] for package in (pyspark, pyarrow)]
    (packages / "others.pth").write_text("".join(f"{path}\n" for path in others))
    return folder / "bin/python"


def _session(leader: int) -> set[int]:
    """The processes of its session."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended since it was listed
            state, _parent, _group, session, *_ = stat.read_text().rpartition(")")[2].split()
            if int(session) == leader and state not in "ZX":
                found.add(int(stat.parent.name))
    return found

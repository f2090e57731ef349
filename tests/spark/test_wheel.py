"""The wheel of the connector in an environment without nsqtw."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.process import NsqdProcess, wait_until
from tests.wire import HOST

ROOT = Path(__file__).parents[2]
LONG = 240

JOB = """
import importlib.util
import sys

import pyspark_nsq
from pyspark_nsq.session import local_session

assert importlib.util.find_spec("nsqtw") is None, "nsqtw is here, too"
assert pyspark_nsq.__file__.startswith(sys.prefix), pyspark_nsq.__file__
http, tcp = sys.argv[1:]
spark = local_session("wheel")
spark.range(100).selectExpr("cast(id AS string) AS value").write.format("nsq").mode("append").options(
    nsqdHttpAddresses=http, topic="t"
).save()
for options in (
    {"replay": "log", "nsqdHttpAddresses": http, "topic": "t"},
    {"nsqdTcpAddresses": tcp, "topic": "t", "channel": "c"},
):
    frame = spark.read.format("nsq").options(**options).load()
    print(frame.select("value").distinct().count())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / "source"
    # A build leaves files beside the source.
    shutil.copytree(ROOT / "contrib/spark", source, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory)]
    subprocess.run([sys.executable, *words, str(source)], check=True)
    [built] = directory.glob("pyspark_nsq-*.whl")
    return built


def test_it_has_every_module_and_the_other_files(wheel: Path) -> None:
    package = ROOT / "contrib/spark/pyspark_nsq"
    modules = {str(path.relative_to(package.parent)) for path in package.rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == modules | {"pyspark_nsq/py.typed", "pyspark_nsq/log4j2.properties"}


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The Python of an environment with the wheel, and with what it requires."""
    home = wheel.parent / "environment"
    venv.create(home)
    python = home / "bin/python"
    words = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, *words], check=True)
    return python


def environment() -> dict[str, str]:
    """The packages of this Python are there, except for those that are installed as a path to a checkout."""
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    others = [path for path in given if not (Path(path) / "nsqtw").exists()]
    return os.environ | {"PYTHONPATH": os.pathsep.join([*others, sysconfig.get_path("purelib")])}


def test_it_writes_and_reads_and_its_processes_end(python: Path, real_nsqd: NsqdProcess, tmp_path: Path) -> None:
    real_nsqd.create("t", "c")
    real_nsqd.order("/v2/topic/retention?topic=t&time=1h")
    addresses = [f"{HOST}:{port}" for port in (real_nsqd.http_port, real_nsqd.tcp_port)]
    job = tmp_path / "job.py"
    job.write_text(JOB)
    # A session of its own, by which its processes are found.
    process = subprocess.Popen(
        [python, job, *addresses],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    said, complained = process.communicate(timeout=LONG)  # also for the end of all who have these pipes
    assert (process.returncode, said.split()) == (0, ["100", "100"]), complained
    wait_until(lambda: not members(process.pid), "all processes of the job have ended", LONG)


def members(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def test_its_command_starts(python: Path, tmp_path: Path) -> None:
    command = python.with_name("nsqtw-spark")
    done = subprocess.run([command, "--help"], env=environment(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: nsqtw-spark ")

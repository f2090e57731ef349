"""The units of contrib/systemd, as systemd-analyze and our own options read them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nsqtw.options.admin import NSQADMIN_READER
from nsqtw.options.command_line import NSQD_READER, OptionReader
from nsqtw.options.lookupd import NSQLOOKUPD_READER
from tests.process import EXECUTABLE

UNITS = Path(__file__).parents[2] / "contrib/systemd"
SERVICES = sorted(UNITS.glob("*.service"))
PREFIX = "/opt/nsqtw/bin"
MAX_EXPOSURE = 2.0
READERS: dict[str, OptionReader[Any, Any]] = {
    "nsqd": NSQD_READER,
    "nsqlookupd": NSQLOOKUPD_READER,
    "nsqadmin": NSQADMIN_READER,
}


def named(path: Path) -> str:
    return path.name


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units, with a program behind each ExecStart."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for service in SERVICES:
        shutil.copy(EXECUTABLE.with_name(service.stem), programs)
    units = tmp_path / "units"
    units.mkdir()
    for unit in UNITS.iterdir():
        (units / unit.name).write_text(unit.read_text("utf-8").replace(PREFIX, str(programs)))
    return units


def test_systemd_reads_the_units(installed: Path) -> None:
    units = sorted(str(path) for path in installed.iterdir())
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_mistake_in_a_unit_is_found(installed: Path) -> None:
    """What the test above relies on."""
    unit = installed / "nsqd.service"
    unit.write_text(unit.read_text().replace("WatchdogSec=30s", "WatchdogSeconds=30s"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert "WatchdogSeconds" in done.stderr


@pytest.mark.parametrize("service", SERVICES, ids=named)
def test_a_service_is_exposed_little(service: Path, installed: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", str(installed / service.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) < MAX_EXPOSURE


def test_every_service_has_a_reader_of_its_options() -> None:
    assert set(READERS) == {service.stem for service in SERVICES}


@pytest.mark.parametrize("name", READERS)
def test_a_service_tells_when_it_is_ready_and_alive(name: str) -> None:
    lines = (UNITS / f"{name}.service").read_text("utf-8").splitlines()
    assert {"Type=notify", "WatchdogSec=30s", "ExecReload=/bin/kill -HUP $MAINPID", "DynamicUser=yes"} <= set(lines)


@pytest.mark.parametrize("name", READERS)
def test_the_options_in_a_unit_are_ours(name: str) -> None:
    text = (UNITS / f"{name}.service").read_text("utf-8")
    found = re.search(rf"^ExecStart={PREFIX}/{name} (.+)$", text, re.MULTILINE)
    assert found is not None
    words = [word for word in found[1].split() if not word.startswith("--config=")]
    resolved = READERS[name].resolve(READERS[name].read_command_line(words))
    READERS[name].table.check(resolved.options)
    assert resolved.warnings == []


def test_the_sockets_are_those_of_nsqd() -> None:
    ports = re.findall(r"^ListenStream=(\d+)$", (UNITS / "nsqd.socket").read_text("utf-8"), re.MULTILINE)
    options = NSQD_READER.resolve(NSQD_READER.read_command_line([])).options
    assert [f":{port}" for port in ports] == [
        address[address.rindex(":") :] for address in (options.tcp_address, options.http_address)
    ]

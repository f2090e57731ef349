"""Finding what is installed, ours and strangers'."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from twisted.plugin import IPlugin
from zope.interface.verify import verifyObject

from nsqtw.errors import DuplicatePlugin, PluginError, UnknownPlugin
from nsqtw.interfaces import IBackendQueueFactory, IProtocolFactory
from nsqtw.plugins import BackendPlugin, ProtocolPlugin, backends, find_backend, protocols

ROOT = Path(__file__).parent.parent

STRANGER = """
from nsqtw.plugins import BackendPlugin

paper = BackendPlugin(name={name!r}, summary="prints it", argument_format="a tray", dotted="paper.Factory")
"""


class Factory:
    """Stands for the code that a descriptor names."""

    def open(self, *arguments: Any) -> tuple[str, tuple[Any, ...]]:
        return "opened", arguments

    def session(self, *arguments: Any) -> tuple[str, tuple[Any, ...]]:
        return "session", arguments


class BrokenFactory:
    def __init__(self) -> None:
        raise AttributeError("a mistake of its own")


def backend(name: str, dotted: str = f"{__name__}.Factory") -> BackendPlugin:
    return BackendPlugin(name=name, summary="for tests", argument_format="", dotted=dotted)


def protocol(name: str, magic: bytes) -> ProtocolPlugin:
    return ProtocolPlugin(name=name, summary="for tests", magic=magic, dotted=f"{__name__}.Factory")


def python(script: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter that finds nsqtw and what is under `path`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)


def install(directory: Path, source: str) -> None:
    """Put a plugin file where twisted.plugin looks for it."""
    (directory / "twisted/plugins").mkdir(parents=True)
    (directory / "twisted/plugins/stranger_plugin.py").write_text(source)


def test_what_ships_is_found_through_the_common_door() -> None:
    assert {"disk", "dummy"} <= set(backends())
    assert protocols()[b"  V2"].name == "V2"


def test_every_descriptor_is_a_plugin_and_a_factory() -> None:
    for one in backends().values():
        assert verifyObject(IPlugin, one) and verifyObject(IBackendQueueFactory, one)
    for one in protocols().values():
        assert verifyObject(IPlugin, one) and verifyObject(IProtocolFactory, one)


def test_a_backend_is_chosen_by_name_with_an_argument_behind_a_colon() -> None:
    disk, paper = backend("disk"), backend("paper")
    assert find_backend("disk", [disk, paper]) == (disk, "")
    assert find_backend("paper:tray:2", [disk, paper]) == (paper, "tray:2")


def test_an_unknown_backend_is_told_what_is_installed() -> None:
    with pytest.raises(UnknownPlugin, match="unknown backend 'tape'; installed: disk, paper"):
        find_backend("tape", [backend("paper"), backend("disk")])


def test_two_backends_of_one_name_are_refused_and_both_are_named() -> None:
    with pytest.raises(DuplicatePlugin, match=r"backend 'disk' is provided more than once: a.Disk, b.Disk"):
        backends([backend("disk", "b.Disk"), backend("disk", "a.Disk")])


def test_two_protocols_of_one_magic_are_refused_whatever_they_are_called() -> None:
    with pytest.raises(DuplicatePlugin, match="protocol '  V3' is provided more than once"):
        protocols([protocol("V3", b"  V3"), protocol("other", b"  V3")])


def test_a_descriptor_hands_over_to_the_code_it_names() -> None:
    report = print
    assert backend("disk").open("tray", "/data", None, report) == (  # type: ignore[comparison-overlap]
        "opened",
        ("tray", "/data", None, report),
    )
    session = protocol("V3", b"  V3").session(None, "peer:1", list, 1.0)
    assert session == ("session", (None, "peer:1", list, 1.0))  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("dotted", ["nsqtw.nowhere.Factory", f"{__name__}.NoFactory"])
def test_code_that_cannot_be_had_is_one_clear_line(dotted: str) -> None:
    with pytest.raises(PluginError, match=f"^backend 'disk' cannot be loaded from {dotted}: "):
        backend("disk", dotted).open("", "", None, print)


def test_a_mistake_inside_the_code_is_not_taken_for_missing_code() -> None:
    with pytest.raises(AttributeError, match="a mistake of its own"):
        backend("disk", f"{__name__}.BrokenFactory").open("", "", None, print)


def test_a_strangers_backend_is_found(tmp_path: Path) -> None:
    install(tmp_path, STRANGER.format(name="paper"))
    done = python("from nsqtw.plugins import help_backend; print(help_backend())", tmp_path)
    assert "  paper\n    \tprints it\n    \tARGUMENT: a tray\n" in done.stdout
    assert "  disk\n" in done.stdout


def test_a_stranger_cannot_take_our_backends_name(tmp_path: Path) -> None:
    install(tmp_path, STRANGER.format(name="disk"))
    done = python("from nsqtw.plugins import find_backend; find_backend('dummy')", tmp_path)
    assert "DuplicatePlugin: backend 'disk' is provided more than once: nsqtw.backends.disk.backend" in done.stderr


def test_a_broken_plugin_file_does_not_keep_the_others_from_being_found(tmp_path: Path) -> None:
    install(tmp_path, "import nowhere_to_be_found\n")
    done = python("from nsqtw.plugins import backends; print(sorted(backends()))", tmp_path)
    assert done.stdout == "['disk', 'dummy', 'sqlite']\n"


def test_listing_the_plugins_loads_nothing_heavy() -> None:
    """Every twistd start on the machine imports our plugin file, whatever it is going to run."""
    done = python(
        "import sys, twisted.plugins.nsqtw_plugin\n"
        "heavy = ['twisted.internet.reactor', 'sqlite3', 'treq', 'nsqtw.core', 'nsqtw.net', 'nsqtw.tap',\n"
        "         'nsqtw.protocols', 'nsqtw.backends']\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert done.stdout == "[]\n", done.stderr

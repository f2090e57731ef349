"""Fixtures of the tests of `nsqtw`: a config file of the test's own, and a broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nsqtw.testing import Broker, broker
from tests.forked import run_forked


class Ran(NamedTuple):
    """What a call wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return stdout as JSON."""
        return json.loads(self.out)


Nsqtw = Callable[..., Ran]
"""Runs `nsqtw` with words."""


@pytest.fixture
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the config file. No test reads that of the user."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("NSQTW_CONTEXTS", str(path))
    monkeypatch.delenv("NSQTW_CONTEXT", raising=False)
    return path


@pytest.fixture(scope="module")
def nsqd() -> Iterator[Broker]:
    """A broker for the tests of a module, which use topics of their own."""
    with broker() as running:
        yield running


@pytest.fixture
def nsqtw(tmp_path: Path, own_config: Path) -> Nsqtw:
    """Run `nsqtw` with words, in a process of its own."""

    def run(*words: str, stdin: bytes = b"", **environment: str) -> Ran:
        done = run_forked(tmp_path, "nsqtw", *words, stdin=stdin, **environment)
        ran = Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in ran.err, ran.err
        return ran

    return run


@pytest.fixture
def on_nsqd(nsqtw: Nsqtw, nsqd: Broker) -> Nsqtw:
    """Run `nsqtw` with words on the broker."""

    def run(*words: str, stdin: bytes = b"", **environment: str) -> Ran:
        return nsqtw("--nsqd-http-address", nsqd.http_address, *words, stdin=stdin, **environment)

    return run

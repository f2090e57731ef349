"""`nsqtw-spark archive --format delta` with the package deltalake."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.process import NsqdProcess
from tests.spark.jobs.conftest import Job, at, publish
from tests.spark.jobs.test_archive import forget_last_commit, one_line


def test_each_message_once_over_restarts(job: Job, broker: NsqdProcess, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    words = ("archive", at(broker), "--topic=t", f"--output={lake}", "--format=delta", "--once", "--max-rows=10")
    bodies = publish(broker, 0, 20)
    assert job(*words).code == 0
    forget_last_commit(lake / "_archive/checkpoint")
    assert job(*words).code == 0, "Spark repeats the last batch"
    bodies += publish(broker, 20, 30)
    assert job(*words).code == 0
    table = DeltaTable(lake).to_pyarrow_table().sort_by("position")
    assert bodies == table["value"].to_pylist()
    assert DeltaTable(lake).metadata().partition_columns == ["topic", "date", "hour"]
    assert job("archive-verify", at(broker), f"--output={lake}").code == 0
    compacted = job("archive-compact", f"--output={lake}")
    assert (compacted.code, compacted.out) == (0, "3 files became 1\n")
    assert len(job("archive-files", f"--output={lake}").out.splitlines()) == 1
    assert job("archive-verify", at(broker), f"--output={lake}").code == 0


def test_delta_is_not_installed(job: Job, broker: NsqdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    said = one_line(
        job("archive", at(broker), "--topic=t", f"--output={tmp_path / 'lake'}", "--format=delta", "--once")
    )
    assert "Delta Lake is not installed: run pip install deltalake, or start Spark with the jars of delta-spark" in said

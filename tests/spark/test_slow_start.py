"""A query is started again when its process of Python started too slowly for Spark, in each job alike."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark_nsq.errors import PipelineError
from pyspark_nsq.jobs.etl.pipeline import Pipeline
from pyspark_nsq.jobs.failures import explained
from pyspark_nsq.slow_start import AGAIN, REMEDY, Starts

SLOW = StreamingQueryException("Query terminated: Python worker failed to connect back.\n=== Streaming Query ===")


def test_a_slow_start_is_repeated_twice() -> None:
    said: list[str] = []
    starts = Starts(said.append)
    assert [starts.again(SLOW) for _ in range(3)] == [True, True, False]
    assert said == [AGAIN] * 2


def test_another_failure_is_not_repeated() -> None:
    assert not Starts(pytest.fail).again(StreamingQueryException("Division by zero"))


def test_the_last_slow_start_is_explained_with_a_remedy() -> None:
    assert explained(SLOW) == REMEDY


class Query:
    """A query that ends after a slow start, or as it should."""

    recentProgress: tuple[()] = ()

    def __init__(self, *, is_slow: bool) -> None:
        self._is_slow = is_slow

    def awaitTermination(self, _seconds: int) -> bool:
        if self._is_slow:
            raise SLOW
        return True

    def stop(self) -> None:
        """Do nothing."""


def pipeline(slow_starts: int) -> tuple[Pipeline, list[str]]:
    """Return a pipeline whose query starts too slowly so often, and the checkpoints of its starts."""
    started: list[str] = []

    def start(checkpoint: str, _trigger: str) -> Query:
        started.append(checkpoint)
        return Query(is_slow=len(started) <= slow_starts)

    config: Any = SimpleNamespace(run=SimpleNamespace(checkpoint="c", trigger="1 second"), path=Path)
    target: Any = SimpleNamespace(name="rows", start=start)
    return Pipeline(config, None, [target]), started  # type: ignore[arg-type]


def test_a_pipeline_starts_a_slow_query_again(capsys: pytest.CaptureFixture[str]) -> None:
    made, started = pipeline(slow_starts=2)
    made.run()
    assert started == ["c/rows"] * 3
    assert f"{AGAIN}\n" * 2 == capsys.readouterr().err


def test_a_pipeline_ends_after_three_slow_starts() -> None:
    made, _ = pipeline(slow_starts=3)
    with pytest.raises(PipelineError) as caught:
        made.run()
    assert str(caught.value) == REMEDY

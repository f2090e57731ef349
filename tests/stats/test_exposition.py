"""The text of a scrape: what the library writes of the rows of a table, in pieces."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from nsqtw.core.histogram import Histogram
from nsqtw.stats.exposition import SAMPLES_AT_ONCE, Exposition
from nsqtw.stats.families import COUNTER, GAUGE, HISTOGRAM, Family

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
DEPTH: Family[Any] = Family("nsq_depth", GAUGE, "Waiting.", itemgetter("depth"), ("channel",))
FINISHED: Family[Any] = Family("nsq_finished_total", COUNTER, "Done.", itemgetter("finished"))
FSYNC: Family[Any] = Family("nsq_fsync_seconds", HISTOGRAM, "Syncs.", itemgetter("fsync"))


def histogram(*values: float) -> Histogram:
    made = Histogram((0.1, 1.0))
    for value in values:
        made.observe(value, 1)
    return made


def text(*families: Family[Any], accept: str = "", **source: Any) -> str:
    """The text without the figures of the process."""
    exposition = Exposition(accept)
    pieces = exposition.pieces((family, family.samples(source)) for family in families)
    return b"".join([*pieces, exposition.end()]).decode()


def test_a_row_is_a_metric() -> None:
    assert text(FINISHED, finished=3) == (
        "# HELP nsq_finished_total Done.\n# TYPE nsq_finished_total counter\nnsq_finished_total 3.0\n"
    )


def test_a_mapping_has_a_sample_for_each_label_value() -> None:
    assert text(DEPTH, depth={"a": 1, 'b"\n': 2}).splitlines()[2:] == [
        'nsq_depth{channel="a"} 1.0',
        'nsq_depth{channel="b\\"\\n"} 2.0',
    ]


def test_a_histogram_has_its_buckets_count_and_sum() -> None:
    assert text(FSYNC, fsync=histogram(0.05, 0.5, 5.0)).splitlines()[2:] == [
        'nsq_fsync_seconds_bucket{le="0.1"} 1.0',
        'nsq_fsync_seconds_bucket{le="1.0"} 2.0',
        'nsq_fsync_seconds_bucket{le="+Inf"} 3.0',
        "nsq_fsync_seconds_count 3.0",
        "nsq_fsync_seconds_sum 5.55",
    ]


def test_a_family_without_samples_is_left_out() -> None:
    assert text(DEPTH, FSYNC, depth={}, fsync=None) == ""


@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_the_pieces_of_a_family_are_one_family(accept: str, parse: Any) -> None:
    depths = {f"c{n}": n for n in range(SAMPLES_AT_ONCE * 2 + 1)}
    whole_text = text(DEPTH, FINISHED, FSYNC, accept=accept, depth=depths, finished=1, fsync=histogram(0.5))
    depth, finished, fsync = parse(whole_text)
    assert {sample.labels["channel"]: sample.value for sample in depth.samples} == depths
    assert [metric.type for metric in (depth, finished, fsync)] == ["gauge", "counter", "histogram"]


def test_a_client_gets_the_format_that_it_accepts() -> None:
    assert Exposition().content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert Exposition(OPENMETRICS).content_type.startswith("application/openmetrics-text; version=1.0.0;")
    assert text(FINISHED, accept=OPENMETRICS, finished=1).endswith("nsq_finished_total 1.0\n# EOF\n")

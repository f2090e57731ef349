"""The figures of a profile without Spark: shapes, percentiles, what the tables and the page show of them."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.jobs.profile.fields import MAX_FIELDS, Fields, Shapes
from pyspark_nsq.jobs.profile.figures import Collector, Figures, unix_seconds
from pyspark_nsq.jobs.profile.page import page
from pyspark_nsq.jobs.profile.quantiles import Durations, percentiles
from pyspark_nsq.jobs.profile.report import Document, document_of
from pyspark_nsq.jobs.profile.scan import Repeats
from pyspark_nsq.jobs.profile.tables import duration_text, overview, plain, share_text, size_text, tables_of

HOUR_US = 3_600_000_000
START_US = 490_000 * HOUR_US


def rows(values: list[Any], step_us: int = 1_000_000, dues: list[int | None] | None = None) -> pa.RecordBatch:
    """Rows of messages, `step_us` apart; what is not bytes is JSON."""
    count = len(values)
    bodies = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    times = [START_US + number * step_us for number in range(count)]
    microseconds = pa.timestamp("us", "UTC")
    return pa.record_batch(
        {
            "nsqd": pa.array(["n:1"] * count),
            "position": pa.array(range(100, 100 + count), pa.int64()),
            "timestamp": pa.array(times, pa.int64()).cast(microseconds),
            "due": pa.array(dues or [None] * count, pa.int64()).cast(microseconds),
            "value": pa.array(bodies, pa.binary()),
        }
    )


def figures_of(*batches: pa.RecordBatch, event_time: str = "") -> Figures:
    """The figures of all batches, each of which another task has seen."""
    merged = Figures()
    for batch in batches:
        collector = Collector(event_time)
        collector.add(batch)
        merged.merge(collector.finish())
    return merged


def fields_of(*values: Any) -> dict[str, tuple[float, bool, dict[str, int]]]:
    found = figures_of(rows(list(values))).fields
    return {
        row.path: (row.present, row.is_conflict, {name: each.count for name, each in row.types.items()})
        for row in found.rows()
    }


def test_fields_have_types_shares_and_conflicts() -> None:
    values = [{"a": 1, "b": {"c": True}}] * 98 + [{"a": "x", "b": {}}, {"a": 2.5, "b": None, "d": None}]
    assert fields_of(*values) == {
        "a": (1.0, True, {"integer": 98, "string": 1, "double": 1}),
        "b": (1.0, False, {"object": 99, "null": 1}),
        "b.c": (98 / 99, False, {"boolean": 98}),
        "d": (0.01, False, {"null": 1}),
    }


def test_arrays_and_messages_that_are_no_objects() -> None:
    found = fields_of({"tags": ["a", "b"]}, {"tags": []}, {"tags": [{"x": 1}, {"x": 2.0}]}, 7)
    assert found == {
        "": (1.0, True, {"object": 3, "integer": 1}),
        "tags": (1.0, False, {"array": 3}),
        "tags[]": (1.0, True, {"string": 1, "object": 2}),
        "tags[].x": (1.0, False, {"integer": 1, "double": 1}),
    }


def test_integers_fit_a_column_of_doubles() -> None:
    assert fields_of({"a": 1}, {"a": 1.5}, {"a": None}) == {
        "a": (1.0, False, {"integer": 1, "double": 1, "null": 1}),
    }


def test_a_conflict_has_the_first_message_of_each_type() -> None:
    found = figures_of(rows([{"a": 1}, {"a": "x"}, {"a": 2}, {"a": "y"}])).fields
    assert {name: each.example for name, each in found.types["a"].items()} == {
        "integer": ("n:1", 100),
        "string": ("n:1", 101),
    }


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(0, 1) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUE, min_size=2, max_size=20), st.data())
def test_tasks_that_share_the_messages_find_the_same(values: list[Any], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    whole = rows(values)
    assert figures_of(whole) == figures_of(whole.slice(0, cut), whole.slice(cut))


def test_names_that_are_data_do_not_grow_without_end() -> None:
    fields = Fields()
    shapes = Shapes(fields)
    for number in range(3 * MAX_FIELDS):
        shapes.add({f"user{number}": 1}, 0, lambda index: ("n:1", index))
    shapes.flush()
    assert (len(fields.types), fields.is_cut) == (MAX_FIELDS, True)


@pytest.mark.parametrize("value", [b"not json", b"\xff{}", b"{", b"NaN", b"[" * 100_000])
def test_what_is_not_json_is_counted_with_an_example(value: bytes) -> None:
    found = figures_of(rows([{"a": 1}, value, value]))
    assert (found.messages, found.not_json, found.not_json_example) == (3, 2, ("n:1", 101))


def test_a_deep_message_is_json_to_the_end() -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"a": [deep]}
    assert figures_of(rows([deep])).not_json == 0


def test_percentiles_are_exact_for_sizes() -> None:
    random.seed(5)
    values = [random.randrange(1, 1000) for _ in range(1001)]
    counts = {value: values.count(value) for value in set(values)}
    ordered = sorted(values)
    assert {"p50": ordered[500], "p90": ordered[900], "p99": ordered[990]} == percentiles(counts)


def test_percentiles_of_durations_are_within_a_hundredth() -> None:
    random.seed(5)
    values = sorted(random.expovariate(0.1) for _ in range(1001))
    one, other = Durations(), Durations()
    one.add(values[:300])
    other.add(values[300:])
    one.merge(other)
    found = one.percentiles()
    for name, index in (("p50", 500), ("p90", 900), ("p99", 990)):
        assert found[name] == pytest.approx(values[index], rel=0.011)
    assert found["max"] == values[-1]
    assert Durations().percentiles() == {}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1767225600, 1767225600),
        (1767225600.5, 1767225600.5),
        (1767225600500, 1767225600.5),
        (1767225600500000, 1767225600.5),
        (1767225600500000000, 1767225600.5),
        ("2026-01-01T00:00:00.5Z", 1767225600.5),
        ("2026-01-01T01:00:00+01:00", 1767225600),
        ("2026-01-01", 1767225600),
        ("soon", None),
        (True, None),
        (-1, None),
        ([], None),
    ],
)
def test_event_times(value: Any, seconds: float | None) -> None:
    assert unix_seconds(value) == seconds


def test_latencies_count_what_has_none() -> None:
    published = START_US / 1e6
    values = [
        {"at": {"ts": published - 2}},
        {"at": {"ts": published + 1 - 4}},
        {"at": {"ts": published + 3600}},
        {"at": {"ts": "soon"}},
        {"at": {}},
        {"at": 5},
        [],
    ]
    found = figures_of(rows(values), event_time="at.ts").event_times
    assert (found.latencies.count, found.in_future, found.unreadable, found.missing) == (2, 1, 1, 3)
    assert found.latencies.percentiles()["p50"] == pytest.approx(2, rel=0.01)
    assert found.latencies.longest == pytest.approx(4)


def document(**more: Any) -> Document:
    """Of a topic with an hour without messages, a conflict and a field that wants to be HTML."""
    values: list[Any] = [{"a": 1, "<script>": 1}] * 5 + [{"a": "x"}, b"no json"]
    first = rows(values)
    second = rows([{"a": 1}] * 3)
    column = second.schema.get_field_index("timestamp")
    late = pa.array([START_US + 2 * HOUR_US] * 3, pa.int64()).cast(pa.timestamp("us", "UTC"))
    second = second.set_column(column, "timestamp", late)
    repeats = {("t&co", "value"): Repeats(6, 2, 5)}
    return document_of("t&co", figures_of(first, second), repeats)


def test_the_document_has_hours_gaps_and_duplicates() -> None:
    found = document()
    assert (found["messages"], [hour["messages"] for hour in found["hours"]]) == (10, [7, 0, 3])
    assert found["hours"][0]["hour"] == "2025-11-24T16:00Z"
    assert [gap["seconds"] for gap in found["gaps"]] == [7194.0]
    assert found["duplicates"]["by_value"] == {"messages": 6, "distinct": 2, "most": 5}
    assert found["duplicates"]["by_id"] == {"messages": 0, "distinct": 0, "most": 0}
    assert sum(bar["messages"] for bar in found["size"]["histogram"]) == 10
    assert (found["json"]["not_json"], found["json"]["not_json_example"]) == (1, {"nsqd": "n:1", "position": 106})
    json.dumps(found)


def test_delays_are_those_asked_for() -> None:
    batch = rows([{}, {}, {}], dues=[START_US + 5_000_000, None, START_US + 12_000_000])
    found = document_of("t", figures_of(batch), None)
    assert (found["delay"]["messages"], found["delay"]["max"]) == (2, 10.0)
    assert found["duplicates"] is None


def test_plain_tables_show_a_conflict_with_a_message_of_each_type() -> None:
    found = document()
    text = "\n".join(plain(table) for table in (overview([found]), *tables_of(found)))
    assert re.search(r"^a +100% +integer 8 \(n:1 100\), string 1 \(n:1 105\) +conflict$", text, re.MULTILINE)
    assert "1 messages are not JSON, for example n:1 106" in text
    assert "no message for 120 min from " in text
    assert "6 duplicates of 2 messages, one of them 5 times" in text


def test_the_page_loads_nothing_and_escapes_what_messages_say() -> None:
    made = page([document()], "127.0.0.1:4151")
    assert "<script" not in made and "&lt;script&gt;" in made and "t&amp;co" in made
    assert not re.search(r"https?://|src=|href=|url\(|@import", made)
    assert len(re.findall(r"<rect [^>]*><title>\d{4}-", made)) == 3
    assert "prefers-color-scheme: dark" in made and 'name="viewport"' in made
    assert "class=conflict" in made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (share_text(1), "100%"),
        (share_text(0.999999), "99.99%"),
        (share_text(0.0000001), "0.01%"),
        (share_text(0), "0%"),
        (size_text(1023), "1023 B"),
        (size_text(1536), "1.5 KiB"),
        (duration_text(0.00002), "20 µs"),
        (duration_text(0.25), "250 ms"),
        (duration_text(90), "90 s"),
        (duration_text(3600), "60 min"),
        (duration_text(10_000_000), "2,777.8 h"),
    ],
)
def test_figures_as_text(text: str, expected: str) -> None:
    assert expected == text

"""The parts of a replay that need no Spark: sections, the checkpoint, the rate over sections, moments."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.errors import OptionError
from pyspark_nsq.jobs.messages import Section
from pyspark_nsq.jobs.moments import MOMENT, rfc3339
from pyspark_nsq.jobs.replay.checkpoint import Checkpoint, Progress
from pyspark_nsq.jobs.replay.plan import Hour, print_counts, sections
from pyspark_nsq.jobs.replay.publish import Schedule, Target, section_size

HOUR = 3_600_000


def hours_of(positions: list[tuple[int, int]]) -> list[Hour]:
    """The counts of messages that are (hour, position)."""
    by_hour: dict[int, list[int]] = {}
    for hour, position in positions:
        by_hour.setdefault(hour, []).append(position)
    return [
        Hour("t", "n", hour * HOUR, hour * HOUR + 1, len(found), len(found), min(found), max(found))
        for hour, found in by_hour.items()
    ]


MESSAGES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 10_000)), min_size=1, max_size=200, unique_by=lambda pair: pair[1]
)


@given(MESSAGES, st.integers(1, 50))
def test_each_message_is_in_one_section(positions: list[tuple[int, int]], size: int) -> None:
    planned = list(sections(hours_of(positions), size))
    for hour, position in positions:
        [section] = [each for each in planned if each.start <= position < each.end]
        assert section.since_ms <= hour * HOUR <= section.until_ms
    assert planned == sorted(planned, key=lambda section: section.start)


def test_sections_have_about_as_many_messages_as_asked_for() -> None:
    dense = [(0, position) for position in range(1000)]
    sparse = [(1, 10_000_000 + 1000 * number) for number in range(500)]
    planned = list(sections(hours_of(dense + sparse), 250))
    counts = [sum(section.start <= at < section.end for _, at in dense + sparse) for section in planned]
    assert counts == [250] * 6


def test_few_messages_in_many_hours_are_one_section() -> None:
    hours = [Hour("t", "n", hour * HOUR, hour * HOUR, 10, 10, hour * 100, hour * 100 + 9) for hour in range(50)]
    assert [Section("t", "n", 0, 4910, 0, 49 * HOUR)] == list(sections(hours, 500))


def test_each_nsqd_has_sections_of_its_own() -> None:
    hours = [Hour("t", nsqd, 0, 1, 10, 10, 5, 14) for nsqd in ("b", "a")]
    assert [each[1:4] for each in map(_values, sections(hours, 100))] == [("a", 5, 15), ("b", 5, 15)]


def _values(section: Section) -> tuple[str, str, int, int]:
    return section.topic, section.nsqd, section.start, section.end


REQUEST = {"--topic": "t", "--where": "", "--limit": None}
PLANNED = [Section("t", "n", 0, 10, 0, 1), Section("t", "n", 10, 20, 1, 2)]


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    written = Progress(REQUEST, 20, PLANNED, 1, 10)
    with Checkpoint(path) as checkpoint:
        assert checkpoint.read(REQUEST) is None
        checkpoint.write(written)
    with Checkpoint(path) as checkpoint:
        assert written == checkpoint.read(REQUEST)


def test_a_checkpoint_of_another_replay_is_refused(tmp_path: Path) -> None:
    with Checkpoint(str(tmp_path / "state")) as checkpoint:
        checkpoint.write(Progress(REQUEST, 20, PLANNED))
        with pytest.raises(OptionError, match='--where was not given, and is "x"; give the same options'):
            checkpoint.read(REQUEST | {"--where": "x"})


def test_a_checkpoint_in_use_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with Checkpoint(path), pytest.raises(OptionError, match="in use by another replay"):
        Checkpoint(path)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 1}', json.dumps({"version": 1, "request": {}, "messages": "x"})]
)
def test_another_file_is_no_checkpoint(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    with Checkpoint(str(path)) as checkpoint, pytest.raises(OptionError, match="is no checkpoint of a replay"):
        checkpoint.read(REQUEST)


def test_a_checkpoint_in_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="its folder must exist"):
        Checkpoint(str(tmp_path / "none" / "state"))


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_the_pause_between_sections_is_caught_up() -> None:
    """Over ten sections of 30 s, each behind a pause of 1 s, the rate is missed by less than 5 %."""
    clock = Clock()
    rate = 100
    schedule = Schedule(rate, clock)
    size = section_size(rate)
    for _ in range(10):
        clock.now += 1
        burst = schedule.burst()
        assert burst <= 2 * rate
        clock.now += (size - burst) / rate
        schedule.published += size
    assert 0.95 * rate < schedule.per_second() <= rate


def test_a_long_outage_is_not_caught_up() -> None:
    clock = Clock()
    schedule = Schedule(100, clock)
    clock.now += 1000
    assert schedule.burst() == 200
    schedule.published += 200
    assert schedule.burst() == 0


def test_requests_are_small_when_the_rate_is_low() -> None:
    sizes = [int(Target({}, "t", rate).options(0)["batchSize"]) for rate in (1, 100, 1_000_000)]
    assert sizes == [1, 10, 5000]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1767225600000", 1767225600000),
        ("2026-01-01T00:00:00Z", 1767225600000),
        ("2026-01-01T01:00:00.250+01:00", 1767225600250),
    ],
)
def test_moments(text: str, expected: int) -> None:
    assert expected == MOMENT.convert(text, None, None) == MOMENT.convert(rfc3339(expected), None, None)


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01T00:00:00", "17"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(click.UsageError, match="neither RFC 3339 with an offset"):
        MOMENT.convert(text, None, None)


def test_the_counts_of_a_dry_run_name_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    hours = [Hour("t", "n", 0, 1, 10, 100, 0, 9)]
    print_counts(hours, 4)
    assert capsys.readouterr().out.splitlines()[-1] == "4 of these messages would be published, by --limit"
    print_counts(hours, 10)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["total", "10", "100"]

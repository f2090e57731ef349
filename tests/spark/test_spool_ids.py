"""The ids that came within the window: none is forgotten, whatever their order, and ordered ones cost no look-up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark_nsq.channel import spool_ids
from pyspark_nsq.channel.spool_ids import KnownIds


def ids(*numbers: int) -> list[bytes]:
    return [b"%016x" % number for number in numbers]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=12), min_size=1, max_size=12),
    st.booleans(),
    st.integers(1, 3),
)
def test_what_came_is_known(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]], again: bool, many: int
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    known = KnownIds()
    model: set[int] = set()
    for number, numbers in enumerate(files):
        is_next = numbers == sorted(set(numbers)) and (not model or numbers[0] > max(model))
        assert is_next == known.are_next("a:1", ids(*numbers))
        fresh = [one for one in dict.fromkeys(numbers) if one not in model]
        model.update(fresh)
        known.add("a:1", ids(*fresh))
        known.add("b:1", ids(*(1_000 + one for one in fresh)))
        if again or number % 3:  # otherwise they stay in memory, perhaps with the next ones
            known.store(folder / f"{number:020d}.ids", number)
    if again:
        known = KnownIds()
        assert all([known.load(path) for path in sorted(folder.iterdir())])
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(spool_ids, "_MANY", many)
        everything = set(ids(*range(201)))
        assert known.are_next("a:1", ids(201)) and not known.are_next("a:1", ids(max(model)))
        assert set(ids(*model)) == known.known("a:1", everything)
        assert set() == known.known("b:1", everything)
        for one in (0, 7, 200):
            assert ({*ids(one)} if one in model else set()) == known.known("a:1", {*ids(one)})


def test_ids_in_order_are_looked_for_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownIds()
    for number in range(5):
        known.add("a:1", ids(*range(number * 100, number * 100 + 100)))
        known.store(tmp_path / f"{number:020d}.ids", number)
    searched: list[Path] = []
    search = spool_ids._Run.known

    def counted(run: spool_ids._Run, some: list[bytes]) -> set[bytes]:
        searched.append(run.path)
        return search(run, some)

    monkeypatch.setattr(spool_ids._Run, "known", counted)
    assert set() == known.known("a:1", {*ids(*range(500, 600))})
    assert searched == []
    assert {*ids(120)} == known.known("a:1", {*ids(120, 501)})
    assert [path.name for path in searched] == ["00000000000000000001.ids"], "one file, whatever their number"


def test_ids_out_of_order_are_looked_for_in_a_file_for_each_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when nsqd mixes the backlog on its disk with new messages."""
    known = KnownIds()
    for number in range(20):
        known.add("a:1", ids(*(10 * number + at for at in range(10)), *(9_000 + 10 * number + at for at in range(10))))
        known.store(tmp_path / f"{number:020d}.ids", number)
    searched = 0
    search = spool_ids._Run.known

    def counted(run: spool_ids._Run, some: list[bytes]) -> set[bytes]:
        nonlocal searched
        searched += 1
        return search(run, some)

    monkeypatch.setattr(spool_ids._Run, "known", counted)
    assert set() == known.known("a:1", {*ids(*range(200, 210), *range(9_200, 9_210))})
    assert searched <= 2


def test_files_go_when_the_window_has_passed(tmp_path: Path) -> None:
    known = KnownIds()
    for number in range(3):
        known.add("a:1", ids(number))
        known.store(tmp_path / f"{number:020d}.ids", number)
    known.forget(before=2)
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000002.ids"]
    assert {*ids(2)} == known.known("a:1", {*ids(0, 1, 2)})


@pytest.mark.parametrize("length", [0, 3, 17, 20, -1])
def test_a_file_that_is_not_whole(tmp_path: Path, length: int) -> None:
    known = KnownIds()
    known.add("a:1", ids(1, 2))
    path = tmp_path / f"{1:020d}.ids"
    known.store(path, 0)
    path.write_bytes(path.read_bytes()[:length])
    assert not KnownIds().load(path)

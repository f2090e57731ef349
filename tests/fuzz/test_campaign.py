"""The engine itself: the same examples each time, findings that can be seen again, and bounds that hold."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from twisted.logger import Logger

from nsqtw.protocols.parameters import decimal
from tests.fuzz.__main__ import main
from tests.fuzz.campaign import Found, example, explore, run, seeds_of
from tests.fuzz.meter import Broken, Endless, Meter
from tests.fuzz.target import Bound, Target
from tests.fuzz.targets import BY_NAME, TARGETS


class Toy(Target):
    """Breaks when there is an x in the input."""

    name = "toy"
    kind = "toys"
    tokens = (b"x",)

    def make(self, chance: Random) -> bytes:
        return chance.randbytes(20).replace(b"x", b"y")

    def run(self, data: bytes) -> str:
        if b"x" in data:
            raise Broken("there is an x")
        return "good" if decimal(data) is None else "a number"


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_a_seed_gives_the_same_examples_each_time(kind: type[Target]) -> None:
    target, starts = kind(), [b"a", b"bc"]
    numbers = range(20)
    examples = [example(target, "1", number, starts) for number in numbers]
    assert [example(target, "1", number, starts) for number in reversed(numbers)] == examples[::-1]
    assert [example(target, "2", number, starts) for number in numbers] != examples
    assert len(set(examples)) > 10


def test_every_directory_of_seeds_belongs_to_a_target() -> None:
    found = {path.name for path in (Path(__file__).parent / "seeds").iterdir()}
    assert found == {name for name in BY_NAME if seeds_of(BY_NAME[name]())}


def test_what_fails_is_made_small_and_written_where_it_can_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(Found) as found:
        run(Toy(), "1", range(1000), tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == b"x"
    assert str(found.value).splitlines() == [
        "toy: there is an x",
        "input (1 bytes): b'x'",
        f"again: python -m tests.fuzz replay toy {file}",
    ]


def test_one_input_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"NOP\n")
    assert main(["replay", "codec", str(file)]) == 0
    assert "1 inputs" in capsys.readouterr().out


def test_exploring_goes_on_from_what_reached_something_new() -> None:
    left = iter(range(300))
    tally = explore(Toy2(), "1", lambda: next(left, None) is not None)
    assert tally.outcomes["a number"] > 0


class Toy2(Toy):
    """Does not break."""

    tokens = (b"1",)

    def make(self, chance: Random) -> bytes:
        return chance.choice((b"", b"7", b"-"))


def test_a_loop_ends_when_it_took_too_many_steps() -> None:
    meter = Meter(50, weighs=False)
    with pytest.raises(Endless), meter.running():
        for _ in range(100):
            decimal(b"1")


def test_a_handler_that_takes_everything_for_its_own_error_hides_nothing() -> None:
    meter = Meter(5, weighs=False)
    with pytest.raises(Endless), meter.running():
        try:
            decimal(b"1")
        except BaseException:
            decimal(b"2")


def test_memory_is_weighed() -> None:
    meter = Meter(50, weighs=True)
    with meter.running():
        bytes(1 << 20)
    assert meter.peak >= 1 << 20


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[2J", "{absent}"])
def test_what_is_logged_is_lines_of_plain_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.daemon.logs.one_line", lambda text: text)
    with pytest.raises(Broken, match="no line of plain text"), Meter(50, weighs=False).running():
        if text == "{absent}":
            Logger().info("{absent.attribute}")
        else:
            Logger().info("{text}", text=text)


def test_an_error_that_is_logged_is_a_finding(logged_failures: list[object]) -> None:
    with pytest.raises(Broken, match="ZeroDivisionError"), Meter(50, weighs=False).running():
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            Logger().failure("what a surprise")
    logged_failures.clear()


def test_a_bound_grows_with_the_input() -> None:
    assert Bound(100, 3).of(b"12345") == 115

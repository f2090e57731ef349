"""The parts of NSQ's tools that need no process: destinations, status lines, the JSON filter."""

from __future__ import annotations

from random import Random

import pytest

from nsqtw.tools.destinations import HostPool, Status, make_pool, status_warning
from nsqtw.tools.json_filter import JsonFilter, Verdict


def picks(pool: object, count: int, now: float = 0.0) -> str:
    """Return the destinations of the next messages, a letter each."""
    return "".join(pool.pick(now) for _ in range(count))  # type: ignore[attr-defined]


def test_round_robin_begins_with_the_second() -> None:
    assert picks(make_pool("round-robin", "abc", Random(1)), 4) == "bcab"
    assert picks(make_pool("unknown", "ab", Random(1)), 2) == "ba"


def test_a_dead_host_is_tried_again_ever_later() -> None:
    pool = HostPool("ab", Random(1))
    assert picks(pool, 3) == "aba"
    pool.failed("b", 0.0)
    assert picks(pool, 3, 29.9) == "aaa"
    assert picks(pool, 2, 30.0) == "ba"
    assert picks(pool, 3, 89.0) == "aaa", "the next retry is 60 s after the first"
    assert picks(pool, 2, 90.0) == "ba"
    pool.succeeded("b", 0.1)
    assert picks(pool, 4, 91.0) in ("abab", "baba")


def test_when_all_are_dead_all_are_tried() -> None:
    pool = HostPool("ab", Random(1))
    pool.failed("a", 0.0)
    pool.failed("b", 0.0)
    assert picks(pool, 3, 1.0) == "aba"


def test_fast_hosts_are_preferred() -> None:
    pool = make_pool("epsilon-greedy", "ab", Random(1))
    for number in range(300):
        address = pool.pick(number * 0.1)
        pool.succeeded(address, 0.010 if address == "a" else 0.100)
    chosen = picks(pool, 300, 31.0)
    assert chosen.count("a") > 2 * chosen.count("b") > 0


def test_status_lines() -> None:
    lines: list[str] = []
    status = Status(100, ["x", "y"], lines.append)
    for number in range(101):
        status.add("x", (number + 1) / 1000)
    line = "finished 100 - 99th: 100.00ms - 95th: 96.00ms - avg: 50.50ms"
    assert lines == [f"[x]: {line}", f"[aggregate]: {line}"]
    Status(0, ["x"], lines.append).add("x", 1.0)
    assert status_warning(99).startswith("Warning: use more than 100 status values")
    assert status_warning(0) == status_warning(100) == ""


@pytest.mark.parametrize(
    ("options", "body", "verdict", "result"),
    [
        (JsonFilter(), b"no json", Verdict.PUBLISH, b"no json"),
        (JsonFilter("a"), b"no json", Verdict.DROP, b""),
        (JsonFilter("a"), b"[1]", Verdict.DROP, b""),
        (JsonFilter("a"), b"null", Verdict.DROP, b""),
        (JsonFilter("a"), b'{"b":1}', Verdict.DROP, b""),
        (JsonFilter("a", "1"), b'{"b":1}', Verdict.REQUEUE, b""),
        (JsonFilter("a", "1"), b'{"a":1.0}', Verdict.PUBLISH, b'{"a":1.0}'),
        (JsonFilter("a", "1.0"), b'{"a":"1"}', Verdict.DROP, b""),
        (JsonFilter("a", "true"), b'{"a":true}', Verdict.DROP, b""),
        (JsonFilter("a", "x"), b'{"a":"x", "b":2}', Verdict.PUBLISH, b'{"a":"x", "b":2}'),
        (JsonFilter(kept=("b", "a", "z")), b'{"a":"<&>","b":{"d":1,"c":[2.50]},"c":3}', Verdict.PUBLISH, None),
        (JsonFilter(kept=("z",)), b'{"a":1}', Verdict.PUBLISH, b"{}"),
        (JsonFilter(kept=("a",)), b'{"a":NaN}', Verdict.DROP, b""),
    ],
)
def test_the_json_filter(options: JsonFilter, body: bytes, verdict: Verdict, result: bytes | None) -> None:
    outcome = options.apply(body)
    wanted = rb'{"a":"\u003c\u0026\u003e","b":{"c":[2.5],"d":1}}' if result is None else result
    assert (outcome.verdict, outcome.body) == (verdict, wanted)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("12345678901234567890", "12345678901234567000"),
        ("1.50", "1.5"),
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("0.0000001", "1e-7"),
        ("0.000001", "0.000001"),
        ("-0.5", "-0.5"),
        ("-0", "-0"),
        ("1.25e-9", "1.25e-9"),
    ],
)
def test_numbers_are_written_as_go_does(number: str, text: str) -> None:
    outcome = JsonFilter(kept=("a",)).apply(f'{{"a":{number}}}'.encode())
    assert outcome.body.decode() == f'{{"a":{text}}}'

"""What patterns allow, and which are not taken."""

from __future__ import annotations

import pytest

from nsqtw.auth.grants import MAX_PATTERN_BYTES, MAX_PATTERNS, Grant, Grants
from nsqtw.errors import AuthError


def allows(grant: Grant, permission: str, topic: str, channel: str = "") -> bool:
    return Grants([grant]).allows(permission, topic, channel)


def test_a_pattern_is_found_anywhere_in_the_name() -> None:
    grant = Grant("order", ["ai"], ["subscribe"])
    assert allows(grant, "subscribe", "my-orders", "mail")
    assert not allows(grant, "subscribe", "my-orders", "post")
    assert not allows(grant, "subscribe", "others", "mail")
    assert not allows(grant, "publish", "my-orders", "mail")


def test_a_publish_has_an_empty_channel() -> None:
    assert not allows(Grant(".*", ["^c$"], ["publish"]), "publish", "t")
    assert not allows(Grant(".*", [], ["publish"]), "publish", "t")
    assert allows(Grant(".*", ["^c$", "^$"], ["publish"]), "publish", "t")


def test_any_grant_may_allow_it_but_not_two_together() -> None:
    rights = Grants([Grant("^a$", [".*"], ["publish"]), Grant("^b$", [".*"], ["subscribe"])])
    assert rights.count == 2
    assert rights.allows("publish", "a", "") and rights.allows("subscribe", "b", "c")
    assert not rights.allows("publish", "b", "") and not rights.allows("subscribe", "a", "c")


def test_nothing_granted_is_nothing_allowed() -> None:
    assert Grants([]).count == 0
    assert not Grants([]).allows("publish", "t", "")


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "(.*)*(.*)*(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_pattern_that_takes_python_for_ever_is_one_as_any_other(pattern: str) -> None:
    assert not allows(Grant(pattern, [".*"], ["publish"]), "publish", "a" * 63 + "!")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "pattern '(' cannot be used: missing ): ("),
        ("(?=a)", "pattern '(?=a)' cannot be used: "),
        (r"(a)\1", r"pattern '(a)\\\\1' cannot be used: "),
        ("x" * (MAX_PATTERN_BYTES + 1), f"is longer than {MAX_PATTERN_BYTES} bytes"),
        (r"\pL{1000}", "pattern too large"),
        ("((((a{99}){99}){99}){99})", "cannot be used"),
        ("\ud800", "cannot be used"),
    ],
)
def test_what_re2_does_not_take_is_no_pattern(pattern: str, why: str) -> None:
    for grant in (Grant(pattern, [".*"], ["publish"]), Grant(".*", [pattern], ["publish"])):
        with pytest.raises(AuthError) as refused:
            Grants([grant])
        assert why.replace("\\\\\\\\", "\\\\") in str(refused.value)
        assert len(str(refused.value)) < 300


def test_there_is_a_bound_on_how_many_there_are() -> None:
    Grants([Grant(".*", ["x"] * (MAX_PATTERNS - 1), ["publish"])])
    with pytest.raises(AuthError, match=f"^{MAX_PATTERNS + 1} patterns, and {MAX_PATTERNS} are allowed$"):
        Grants([Grant(".*", ["x"] * MAX_PATTERNS, ["publish"])])


def test_an_unknown_permission_is_none() -> None:
    with pytest.raises(AuthError, match=r"^unknown permission 'pub'; there are publish, subscribe, admin$"):
        Grants([Grant(".*", [".*"], ["pub"])])

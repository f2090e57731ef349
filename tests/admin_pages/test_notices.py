"""Notices: kept for a minute, under a token that cannot be guessed."""

from __future__ import annotations

from nsqtw.admin.pages.notices import KEPT_SECONDS, MAX_NOTICES, Notices


def test_a_notice_is_found_by_its_token() -> None:
    notices = Notices()
    token = notices.add("The topic is paused.", ["a:1 failed\nb:2 failed", ""], now=0.0)
    found = notices.find(token, now=1.0)
    assert found is not None
    assert (found.text, found.details) == ("The topic is paused.", ("a:1 failed", "b:2 failed"))


def test_an_unknown_token_has_no_notice() -> None:
    notices = Notices()
    notices.add("x", [], now=0.0)
    assert notices.find("", now=0.0) is None
    assert notices.find("guessed", now=0.0) is None


def test_a_notice_ends_after_its_time() -> None:
    notices = Notices()
    token = notices.add("x", [], now=100.0)
    assert notices.find(token, now=100.0 + KEPT_SECONDS) is not None
    assert notices.find(token, now=100.1 + KEPT_SECONDS) is None


def test_the_oldest_of_too_many_is_dropped() -> None:
    notices = Notices()
    tokens = [notices.add(str(number), [], now=0.0) for number in range(MAX_NOTICES + 1)]
    assert len(set(tokens)) == MAX_NOTICES + 1
    assert notices.find(tokens[0], now=0.0) is None
    assert notices.find(tokens[1], now=0.0) is not None

"""What the fields of a form ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nsqtw.admin.actions import ACTIONS
from nsqtw.admin.pages import fields
from nsqtw.admin.pages.action_forms import CHANNEL_PAGE, FORMS, TOPIC_PAGE
from nsqtw.errors import FormError


def test_every_form_has_an_action_and_destructive_ones_ask_for_a_name() -> None:
    for form in FORMS.values():
        assert form.action in ACTIONS
        assert bool(form.typed) == ACTIONS[form.action].is_destructive, form.name


def test_every_action_has_a_form() -> None:
    combined = {"create_channel", "set_retention"}
    assert {form.action for form in FORMS.values()} | combined == set(ACTIONS)


def test_a_channel_is_created_where_one_is_named() -> None:
    assert fields.create({"topic": "t"}) == ("create_topic", {})
    assert fields.create({"topic": "t", "channel": "c"}) == ("create_channel", {})


def test_lines_of_a_message_end_as_they_were_typed() -> None:
    assert fields.publish({"body": "one\r\ntwo"}) == ("publish", {"body": b"one\ntwo", "headers": {}})
    with pytest.raises(FormError, match="no empty messages"):
        fields.publish({"body": ""})


def test_headers_are_read_one_a_line() -> None:
    form = {"body": "x", "headers": "Tenant: acme\r\n\r\nurl: http://a:1\r\n"}
    assert fields.publish(form)[1]["headers"] == {"tenant": "acme", "url": "http://a:1"}
    for text, error in (("tenant", "name: value"), (": x", "name: value"), ("a: 1\nA: 2", "there twice")):
        with pytest.raises(FormError, match=error):
            fields.publish({"body": "x", "headers": text})


@pytest.mark.parametrize(
    ("form", "to"),
    [
        ({"kind": "earliest"}, "earliest"),
        ({"kind": "latest", "time": "2026-01-01T00:00"}, "latest"),
        ({"kind": "message", "message": " 0A1B2C3D4E5F6071 "}, "0a1b2c3d4e5f6071"),
        ({"kind": "time", "time": "2026-01-02T03:04"}, "2026-01-02T03:04:00Z"),
        ({"kind": "time", "time": "2026-01-02T03:04:05+02:00"}, "2026-01-02T01:04:05Z"),
    ],
)
def test_a_position_is_said_as_nsqd_reads_it(form: Mapping[str, str], to: str) -> None:
    assert fields.seek(form) == ("seek_channel", {"to": to})


@pytest.mark.parametrize(
    "form",
    [{}, {"kind": "x"}, {"kind": "message", "message": "12"}, {"kind": "time", "time": "soon"}, {"kind": "time"}],
)
def test_a_position_that_is_none_is_refused(form: Mapping[str, str]) -> None:
    with pytest.raises(FormError):
        fields.seek(form)


RETENTION = {"what": "retention"}


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        ({"time": "2", "unit": "days", "megabytes": "500"}, {"time": "172800s", "bytes": str(500 << 20)}),
        ({"time": "", "unit": "hours", "megabytes": ""}, {"time": "0s", "bytes": "0"}),
        ({"time": "x", "unit": "x", "default": "yes"}, {"time": "default", "bytes": "default"}),
    ],
)
def test_retention_is_a_time_and_a_size(form: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    assert fields.settings({**RETENTION, **form}) == ("set_retention", arguments)


@pytest.mark.parametrize(
    "form",
    [
        {**RETENTION, "time": "-1", "unit": "days"},
        {**RETENTION, "time": "1", "unit": "years"},
        {**RETENTION, "time": "1", "unit": "days", "megabytes": "much"},
        {"what": "durability", "durability": "maybe"},
        {"what": "durability"},
    ],
)
def test_settings_that_are_none_are_refused(form: Mapping[str, str]) -> None:
    with pytest.raises(FormError):
        fields.settings(form)


def test_a_redrive_may_have_a_rate() -> None:
    assert fields.redrive({"rate": " 100 "}) == ("redrive_channel", {"rate": "100"})
    assert fields.redrive({"rate": "0"}) == fields.redrive({}) == ("redrive_channel", {})
    for rate in ("-1", "fast", "1" * 10):
        with pytest.raises(FormError):
            fields.redrive({"rate": rate})


def test_a_policy_is_changed_where_a_field_is_filled_in() -> None:
    form = {"topic": "t", "set.max_attempts": " 5 ", "set.max_age": "", "unset.priority": "yes", "nodes": "a:1 b:2"}
    assert fields.policy("set_policy_channel")(form) == (
        "set_policy_channel",
        {"settings": {"max_attempts": "5", "priority": None}, "nodes": ["a:1", "b:2"]},
    )
    with pytest.raises(FormError, match="max_age is to be set and to be unset"):
        fields.changed_settings({"set.max_age": "1h", "unset.max_age": "yes"})
    with pytest.raises(FormError, match="Enter a new value"):
        fields.policy("set_policy_topic")({"set.message_ttl": " "})


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (TOPIC_PAGE, ["publish", "settings", "pause_topic", "unpause_topic", "empty_topic", "delete_topic"]),
        (
            CHANNEL_PAGE,
            [
                *("seek_channel", "redrive_channel", "pause_channel", "unpause_channel", "empty_channel"),
                "delete_channel",
            ],
        ),
    ],
)
def test_a_page_has_the_buttons_of_its_forms(page: str, names: list[str]) -> None:
    assert [form.name for form in FORMS.values() if form.shown_on == page] == names


def test_a_button_is_red_for_an_action_that_loses_messages_or_names() -> None:
    dangerous = {form.action for form in FORMS.values() if form.is_dangerous}
    assert dangerous == {name for name, action in ACTIONS.items() if action.is_destructive} - {"seek_channel"}

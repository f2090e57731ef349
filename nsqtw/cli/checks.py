"""Checks of arguments and options that several verbs have."""

from __future__ import annotations

from nsqtw.errors import OptionError
from nsqtw.names import is_valid_name
from nsqtw.options.texts import parse_duration


def check_name(name: str) -> None:
    """Check the name of a topic or channel. OptionError."""
    if not is_valid_name(name):
        raise OptionError(f"no topic or channel can have the name {name!r}: 1 to 64 of a-z A-Z 0-9 . _ -")


def duration_of(option: str, text: str, form: str) -> float:
    """Return the seconds of the value of an option; `form` is what it must be. OptionError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise OptionError(f"{option} {text!r} must be {form}") from error

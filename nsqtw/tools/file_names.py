"""
Names of the files of nsq_to_file.

    <TOPIC>.<HOST><REV>.<DATETIME>.log   --filename-format
    t.h<REV>.<DATETIME>.log              `pattern`, for one topic and process
    t.h<REV>.2026-11-21_07.log           `at`, for one time
    t.h-000003.2026-11-21_07.log         `with_revision`, the name of a file
"""

from __future__ import annotations

import os
import re
import time

import attrs

from nsqtw.tools.program import ToolError

_TIME_PART = re.compile(r"(%[BbmAadHIMSYypZz%])")
_TWO_DIGITS = r"[0-9]{2}"
_TIME_EXPRESSIONS = {
    **dict.fromkeys(("%m", "%d", "%H", "%I", "%M", "%S", "%y"), _TWO_DIGITS),
    "%Y": r"[0-9]{4,}",
    "%%": "%",
    "%z": r"[+-][0-9]{4}",
}
_WORD = r"[^/]*"
"""The parts of a time that are words, which depend on the locale and the time zone."""
_TOPIC, _HOST, _PID, _REVISION, _DATETIME = "<TOPIC>", "<HOST>", "<PID>", "<REV>", "<DATETIME>"
_LATE_PART = re.compile(f"({_PID}|{_REVISION}|{_DATETIME})")
_GZIP = ".gz"


def host_identifier(text: str, host_name: str) -> str:
    """Return the text for `<HOST>`: `text` with its placeholders replaced, the short host name for an empty one."""
    short = host_name.partition(".")[0]
    return text.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", host_name) if text else short


def formatted_time(pattern: str, now: float) -> str:
    """Return `now` in local time. Only the documented parts of `pattern` are replaced; others stay as they are."""
    local = time.localtime(now)
    return _TIME_PART.sub(lambda part: time.strftime(part[0], local), pattern)


@attrs.frozen
class FileNames:
    """
    The names of the files of one topic. With `has_revisions` each file has a number. `expression` matches the names
    that the topic's files have at any time and in any process; its groups are the revisions.
    """

    pattern: str
    datetime_pattern: str
    has_revisions: bool
    expression: re.Pattern[str]

    @classmethod
    def of_topic(
        cls, topic: str, *, pattern: str, datetime_pattern: str, host: str, has_revisions: bool, is_gzip: bool
    ) -> FileNames:
        """Make the names of a topic. ToolError when the pattern has no place for a needed revision."""
        if has_revisions and _REVISION not in pattern:
            raise ToolError("missing <REV> in --filename-format when gzip, rotation, or work dir enabled")
        pattern = _with_topic(pattern.replace(_HOST, host), topic)
        if is_gzip and not pattern.endswith(_GZIP):
            pattern += _GZIP
        expression = _expression(pattern, datetime_pattern, has_revisions)
        return cls(pattern.replace(_PID, str(os.getpid())), datetime_pattern, has_revisions, expression)

    def at(self, now: float) -> str:
        """Return the name of the current file, with a place for the revision."""
        return self.pattern.replace(_DATETIME, formatted_time(self.datetime_pattern, now))

    def with_revision(self, name: str, revision: int) -> str:
        """Return a name with its revision."""
        return name.replace(_REVISION, _revision(revision) if self.has_revisions else "")

    def renumbered(self, name: str, more: int) -> str:
        """Return the name of a file of this topic with a revision that is higher by `more`."""
        match = self.expression.fullmatch(name)
        assert match is not None
        pieces, end = [], 0
        for group in range(1, self.expression.groups + 1):
            pieces += [name[end : match.start(group)], _revision(int(match[group][1:]) + more)]
            end = match.end(group)
        return "".join((*pieces, name[end:]))


def _revision(number: int) -> str:
    return f"-{number:06d}"


def _with_topic(pattern: str, topic: str) -> str:
    """Insert the topic. Its dots are percent-encoded where a part of the path would mean a directory, as `..` does."""
    bare = pattern.replace(_REVISION, "").replace(_DATETIME, "").replace(_TOPIC, topic)
    parts = zip(pattern.replace(_DATETIME, "").split("/"), bare.split("/"), strict=True)
    if any(_TOPIC in part and made in (".", "..") for part, made in parts):
        topic = topic.replace(".", "%2E")
    return pattern.replace(_TOPIC, topic)


def _expression(pattern: str, datetime_pattern: str, has_revisions: bool) -> re.Pattern[str]:
    late = {
        _PID: "[0-9]+",
        _REVISION: "(-[0-9]{6,})" if has_revisions else "",
        _DATETIME: "".join(map(_time_expression, _TIME_PART.split(datetime_pattern))),
    }
    return re.compile("".join(late.get(part, re.escape(part)) for part in _LATE_PART.split(pattern)))


def _time_expression(part: str) -> str:
    if _TIME_PART.fullmatch(part):
        return _TIME_EXPRESSIONS.get(part, _WORD)
    return re.escape(part)

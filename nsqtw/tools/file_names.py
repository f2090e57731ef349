"""Names of the files of nsq_to_file (suite specification 3.1)."""

from __future__ import annotations

import os
import re
import time

import attrs

from nsqtw.tools.program import ToolError

_TIME_PART = re.compile(r"%([BbmAadHIMSYypZz%])")
_REVISION = "<REV>"
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
    The names of the files of one topic. `pattern` has `<TOPIC>`, `<HOST>`, `<PID>` and `<REV>` as in --filename-format;
    with `has_revisions` each file has a number.
    """

    pattern: str
    datetime_pattern: str
    has_revisions: bool
    all_names: re.Pattern[str]
    """The names of all files of the topic, of any process and time; the groups `start` and `end` are beside <REV>."""

    @classmethod
    def of_topic(
        cls, topic: str, *, pattern: str, datetime_pattern: str, host: str, has_revisions: bool, is_gzip: bool
    ) -> FileNames:
        """Make the names of a topic. ToolError when the pattern has no place for a needed revision."""
        if has_revisions and _REVISION not in pattern:
            raise ToolError("missing <REV> in --filename-format when gzip, rotation, or work dir enabled")
        # A topic may have a name that is a directory.
        safe_topic = topic.replace(".", "%2E") if topic in (".", "..") else topic
        if is_gzip and not pattern.endswith(_GZIP):
            pattern += _GZIP
        for name, value in (("<TOPIC>", safe_topic), ("<HOST>", host)):
            pattern = pattern.replace(name, value, 1)
        start, _, end = (re.escape(part) for part in pattern.partition(_REVISION))
        anything = f"(?P<start>{start})(?:-[0-9]{{6,}})(?P<end>{end})"
        all_names = re.compile(anything.replace("<PID>", "[0-9]+").replace("<DATETIME>", "[^/]*"))
        return cls(pattern.replace("<PID>", str(os.getpid()), 1), datetime_pattern, has_revisions, all_names)

    def at(self, now: float) -> str:
        """Return the name of the current file, with a place for the revision."""
        return self.pattern.replace("<DATETIME>", formatted_time(self.datetime_pattern, now))

    def with_revision(self, name: str, revision: int) -> str:
        """Return a name with its revision."""
        return name.replace(_REVISION, f"-{revision:06d}" if self.has_revisions else "")

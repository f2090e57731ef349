"""What docs/how-to/deduplication.md and scheduled-messages.md tell people to type does what they say."""

from __future__ import annotations

import json
from pathlib import Path

from tests.pages import reading
from tests.process import Counts


def test_a_reader_publishes_twice_and_one_message_is_stored(tmp_path: Path) -> None:
    with reading("how-to/deduplication.md", tmp_path) as reader:
        reader.follow()
        (topic,) = reader.nsqd.stats("payments")
        assert (topic["depth"], topic["deduplicated_count"]) == (1, 1)


def test_a_reader_schedules_and_cancels(tmp_path: Path) -> None:
    with reading("how-to/scheduled-messages.md", tmp_path) as reader:
        typed = reader.follow()
        (with_ids, cancelled) = map(json.loads, reader.page.blocks("json"))
        answers = {
            word: [json.loads(one.output) for one in typed if one.command.startswith("curl ") and word in one.command]
            for word in ("ids=true", "/cancel")
        }
        assert {tuple(answer) for answer in answers["ids=true"]} == {tuple(with_ids)}
        assert {tuple(answer) for answer in answers["/cancel"]} == {tuple(cancelled)}
        assert all(answer["channels"] == cancelled["channels"] for answer in answers["/cancel"])
        published = sum("/pub" in one.command or "nsqtw pub" in one.command for one in typed)
        ended = sum("cancel" in one.command for one in typed)
        assert (published, ended) == (9, 4)
        for channel in cancelled["channels"]:
            reader.nsqd.await_counts("reminders", channel, Counts(0, 0, published - ended))

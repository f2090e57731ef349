"""Everything docs/how-to/headers.md tells people to type does what it says, with a broker as they run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nsqtw.message_headers import MAX_BYTES, MAX_COUNT, MAX_ID_BYTES, MAX_NAME_BYTES
from tests.pages import Page, reading
from tests.process import NsqdProcess

PAGE = Page("how-to/headers.md").text


def shown(nsqd: NsqdProcess) -> list[tuple[str, Any]]:
    answer = json.loads(nsqd.http("GET", "/v2/channel/messages?topic=orders&channel=billing").body)
    return [(message["body"], message.get("headers")) for message in answer["messages"]]


def test_a_reader_publishes_and_reads_headers(tmp_path: Path) -> None:
    with reading("how-to/headers.md", tmp_path) as reader:
        reader.follow()
        assert shown(reader.nsqd) == [
            ('{"order": 17}', {"content-type": "application/json", "tenant": "acme"}),
            ("a message", {"tenant": "acme"}),
            ("for a minute", {"id": "order-17", "priority": "high", "ttl": "60000"}),
            ("hello", {"tenant": "acme", "ttl": "60000"}),
            ("hello at once", {"priority": "high"}),
            ("one", {"id": "order-1"}),
            ("two", {"id": "order-2", "tenant": "acme"}),
            ("three", None),
        ]


def test_the_limits_of_the_page_are_those_of_the_broker() -> None:
    limits = (f"1 to {MAX_NAME_BYTES} letters", f"at most {MAX_COUNT} headers", f"at most {MAX_BYTES} bytes")
    assert [text for text in (*limits, f"1 to {MAX_ID_BYTES} bytes") if text not in PAGE] == []

"""Everything docs/how-to/headers.md tells people to type does what it says, with a broker as they run it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from nsqtw.message_headers import MAX_BYTES, MAX_COUNT, MAX_ID_BYTES, MAX_NAME_BYTES
from tests.process import NsqdProcess

PAGE = (Path(__file__).parent.parent / "docs/how-to/headers.md").read_text("utf-8")
ADDRESS = "127.0.0.1:4151"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for word, text in found if word == language]


def requests(nsqd: NsqdProcess) -> Iterator[Request]:
    """The request of each curl command of the page, in order."""
    for line in "".join(blocks("")).splitlines():
        if line.startswith("curl "):
            words = shlex.split(line)
            request = Request(words.pop().replace(ADDRESS, f"127.0.0.1:{nsqd.http_port}"))
            for option, value in zip(words[1::2], words[2::2], strict=True):
                if option == "-H":
                    request.add_header(*value.split(": "))
                elif option == "-d":
                    request.data = value.encode()
                else:
                    assert option == "-o"
            yield request


def shown(nsqd: NsqdProcess) -> list[tuple[str, Any]]:
    answer = json.loads(nsqd.http("GET", "/v2/channel/messages?topic=orders&channel=billing").body)
    return [(message["body"], message.get("headers")) for message in answer["messages"]]


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    process = NsqdProcess(tmp_path)
    process.start()
    process.create("orders", "billing")
    yield process
    process.close()


def test_every_command_is_answered(nsqd: NsqdProcess) -> None:
    done = [urlopen(request).status for request in requests(nsqd)]
    assert done == [200] * 5
    assert shown(nsqd) == [
        ('{"order": 17}', {"content-type": "application/json", "tenant": "acme"}),
        ("a message", {"tenant": "acme"}),
        ("for a minute", {"id": "order-17", "priority": "high", "ttl": "60000"}),
    ]
    nsqd.assert_no_traceback()


def test_the_program_of_the_page_publishes_headers(nsqd: NsqdProcess) -> None:
    (program,) = blocks("python")
    exec(program.replace(ADDRESS, f"127.0.0.1:{nsqd.http_port}"), {})
    assert shown(nsqd) == [
        ("one", {"id": "order-1"}),
        ("two", {"id": "order-2", "tenant": "acme"}),
        ("three", None),
    ]


def test_the_limits_of_the_page_are_those_of_the_broker() -> None:
    limits = (f"1 to {MAX_NAME_BYTES} letters", f"at most {MAX_COUNT} headers", f"at most {MAX_BYTES} bytes")
    assert [text for text in (*limits, f"1 to {MAX_ID_BYTES} bytes") if text not in PAGE] == []

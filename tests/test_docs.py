"""The documents hang together."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.pages import BLOCK

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "contrib").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors_of(page: Path) -> set[str]:
    """The names that headings can be linked by."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


def test_every_page_can_be_reached_from_the_readme() -> None:
    """A link to a directory reaches the pages in it."""
    reached: set[Path] = set()
    to_read = [ROOT / "README.md"]
    while to_read:
        page = to_read.pop()
        reached.add(page)
        for link in LINK.findall(page.read_text("utf-8")):
            target = (page.parent / link.partition("#")[0]).resolve()
            to_read += {target, *target.glob("*.md")} & set(PAGES) - reached
    assert reached == set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_can_be_pasted_into_any_shell(page: Path) -> None:
    """zsh takes a question mark outside quotes for a pattern."""
    for block in re.findall(r"^```(?:sh)?\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("curl "):
                bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", line)
                assert not set(bare) & set("?*&["), line


DAEMON = re.compile(r"(?:NSQTW_\w+=\S+ )*(?:nsqd|nsqlookupd|nsqadmin|twistd -n nsq\w*)(?= |$)")
PROTECTED = re.compile(
    r"--(auth|peer-secret-file|tls-client-auth-policy=require-verify|acl-http-header|config|help\S*)\b"
)
"""Flags of a daemon that asks its clients who they are, reads its addresses from a file, or only prints something."""
IN_A_NETWORK = {
    ("high-availability.md", "nsqd --data-path=/var/lib/nsqd"): "one of two machines",
    ("discovery.md", "nsqd --lookupd-tcp-address=10.0.0.1:4160"): "brokers of three machines",
    ("migration.md", "nsqd --data-path=/var/lib/nsqd"): "takes the place of an nsqd, with the addresses that it had",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_opens_a_daemon_to_the_network(page: Path) -> None:
    """A daemon without access control listens on 127.0.0.1."""
    for language, block in BLOCK.findall(page.read_text("utf-8")):
        for line in block.splitlines() if language in ("", "sh") else ():
            if not DAEMON.match(line) or PROTECTED.search(line):
                continue
            if any(name == page.name and line.startswith(start) for name, start in IN_A_NETWORK):
                continue
            needed = {"http"} if "nsqadmin" in line.split(" --")[0] else {"tcp", "http"}
            needed |= {"https"} if "--tls-cert" in line else set()
            given = re.findall(r"(?:--|NSQTW_)(tcp|http|https)[-_]address=127\.0\.0\.1:\d", line, re.IGNORECASE)
            assert {name.lower() for name in given} == needed, line
        assert not re.search(r"docker run .*-p (?!127\.0\.0\.1:)", block), block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_installs_from_an_index_what_is_not_there(page: Path) -> None:
    """Until there is a release."""
    installs = re.findall(r"pip install [^`\n]*", page.read_text("utf-8"))
    assert not [
        line for line in installs if page.name != "CHANGELOG.md" and re.search(r"[ '](nsqtw|pyspark-nsq)", line)
    ]


def test_make_without_a_target_lists_all_targets() -> None:
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    makefile = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
    (targets,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert {*re.findall(r"^make (\S+) ", listed, re.MULTILINE), "help"} == set(targets.split())
    assert max(len(line) for line in listed.splitlines()) <= 120
    assert len({len(start) for start in re.findall(r"^make \S+ +", listed, re.MULTILINE)}) == 1, "one column"
    runs = subprocess.run(["make", "-n", "run", "PORT=5150"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "nsqtw up --port 5150 --data-path nsq-data" in runs.stdout


def test_no_file_has_marks_of_a_conflict() -> None:
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    listed = subprocess.run(["git", "grep", "-lI", ""], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        lines = (ROOT / name).read_text("utf-8", "replace").splitlines()
        assert not [line for line in lines if line.startswith(marks)], name

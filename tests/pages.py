"""
The pages of the documentation, followed as a reader does: one page alone, from the top, on a fresh broker.

`Page` cuts a page into its code blocks. `Reader` types the commands of the blocks without a language and of `sh`, runs
the programs in Python, and writes the `toml` blocks into the config file of the broker and reloads it. Ids and tokens
that a page shows stand for those of an earlier answer.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.process import NsqdProcess
from tests.wire import ANSWER_SECONDS, HOST

DOCS = Path(__file__).parent.parent / "docs"
BIN = Path(sys.executable).parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(curl|nsqtw|printf|seq) ")
ENDLESS = re.compile(r"nsqtw tail (?!.*(-n |\|))|nsqtw up\b|curl -N ")
"""Commands that run until Ctrl-C."""
SHOWN = {
    "0a1b2c3d4e5f6071": re.compile(r'"ids?": ?\[?"([0-9a-f]{16})"'),
    "5f1c0a9be2d4.1.0269ac8e2d3f4001.1": re.compile(r'"token":"([^"]+)"'),
}
"""Ids on the pages, and where the answers of a broker have one."""

CURL = """import sys, urllib.error, urllib.request
words = sys.argv[1:]
options = {"-d": "", "--data-binary": "", "-H": "", "-X": "", "-o": ""}
fields, url = {}, ""
while words:
    word = words.pop(0)
    if word == "-H":
        name, _, value = words.pop(0).partition(": ")
        fields[name] = value
    elif word in options:
        options[word] = words.pop(0)
    elif not word.startswith("-"):
        url = word if "://" in word else "http://" + word
body = options["-d"] or options["--data-binary"]
data = sys.stdin.buffer.read() if body == "@-" else body.encode() if body else None
request = urllib.request.Request(url, data, fields, method=options["-X"] or None)
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    sys.exit(f"{error.code} {error.read().decode()}")
output = open(options["-o"], "wb") if options["-o"] else sys.stdout.buffer
output.write(answer.read())
"""
JQ = """import json, sys
field = sys.argv[-1].rpartition(".")[2]
print(*(message[field] for message in json.load(sys.stdin)["messages"]), sep="\\n")
"""
"""What the pages use of curl and jq, because not every machine has them. This curl fails if the answer is an error."""


class Page:
    """A page of the documentation, by its path below docs/."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.text = (DOCS / path).read_text("utf-8")
        self.code: list[tuple[str, str]] = BLOCK.findall(self.text)

    def blocks(self, language: str) -> list[str]:
        """The blocks of a language, in order."""
        return [text for word, text in self.code if word == language]


class Typed(NamedTuple):
    """A command of a page, and what it printed."""

    command: str
    output: str


@contextmanager
def reading(page: str, directory: Path, *flags: str) -> Iterator[Reader]:
    """A reader of a page, whose broker ends with the block and must not have logged a traceback."""
    reader = Reader(page, directory, *flags)
    try:
        yield reader
        reader.nsqd.assert_no_traceback()
    finally:
        reader.nsqd.close()


class Reader:
    """A reader with a fresh broker, an empty home directory and an empty directory to work in."""

    def __init__(self, page: str, directory: Path, *flags: str) -> None:
        self.page = Page(page)
        self.nsqd = NsqdProcess(directory / "broker", f"--config={directory / 'nsqd.toml'}", *flags)
        self._home = directory / "home"
        self._config = directory / "nsqd.toml"
        self._shown: dict[str, str] = {}
        for path in (self._home, directory / "bin"):
            path.mkdir()
        self._config.write_text("")
        for name, program in (("curl", CURL), ("jq", JQ)):
            path = directory / "bin" / name
            path.write_text(f"#!{sys.executable}\n{program}")
            path.chmod(0o755)
        self._environment = {
            "HOME": str(self._home),
            "PATH": os.pathsep.join(map(str, (directory / "bin", BIN, "/usr/bin", "/bin"))),
            "ONCE": "1",
        }
        self.nsqd.start()
        self.type(f"nsqtw context add here --nsqd-http-address {HOST}:4151")

    def follow(self) -> list[Typed]:
        """Do what the page says from top to bottom. Every command must succeed."""
        typed = []
        for language, text in self.page.code:
            if language == "toml":
                self.configure(text)
            elif language == "python":
                self.type(f"{sys.executable} -c {shlex.quote(text)}")
            elif language in ("", "sh") and COMMAND.match(text):
                typed += [Typed(line, self.type(line)) for line in text.splitlines() if not line.startswith("#")]
        return typed

    def configure(self, text: str) -> None:
        """Add lines to the config file, and reload it."""
        before = self._config.read_text()  # keys outside tables stand first in a file of TOML
        self._config.write_text(before + text if text.startswith("[") else text + before)
        self.nsqd.order("/v2/reload")

    def type(self, command: str) -> str:
        """Run a command, and return what it prints. One that runs until Ctrl-C must start and print no error."""
        text = self.here(command)
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self._home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=2 if ENDLESS.match(command) else ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            assert ENDLESS.match(command), f"{command} does not end: {output}{errors}"
            return output
        assert process.returncode == 0, f"{command}: {output}{errors}"
        for shown, place in SHOWN.items():
            if found := place.findall(output):
                self._shown[shown] = found[-1]
        return output

    def here(self, text: str) -> str:
        """Text of the page, with the ports of this broker and ids that it has given."""
        for port, number in ((4150, self.nsqd.tcp_port), (4151, self.nsqd.http_port)):
            text = text.replace(f"127.0.0.1:{port}", f"{HOST}:{number}")
        for shown, found in self._shown.items():
            text = text.replace(shown, found)
        return text

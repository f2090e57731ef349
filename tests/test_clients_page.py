"""The certificate authority of docs/start/clients.md: its commands, and a broker and a client with what they make."""

from __future__ import annotations

import http.client
import re
import shlex
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.process import NsqdProcess, wait_until
from tests.wire import ANSWER_SECONDS, HOST

PAGE = (Path(__file__).parent.parent / "docs/start/clients.md").read_text("utf-8")
SECTION = PAGE[PAGE.index("## A certificate authority for trials") : PAGE.index("## Compression")]
MAKING, USING = re.findall(r"^```\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the commands were run."""
    directory = tmp_path_factory.mktemp("authority")
    subprocess.run(["sh", "-e", "-c", MAKING], cwd=directory, check=True, capture_output=True)
    return directory


def test_the_broker_and_curl_of_the_page_trust_each_other(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, request = USING.splitlines()
    words = shlex.split(request)
    ca, certificate, key = (words[words.index(flag) + 1] for flag in ("--cacert", "--cert", "--key"))
    monkeypatch.chdir(made)
    broker = NsqdProcess(tmp_path, *shlex.split(start)[1:], f"--https-address={HOST}:0")
    broker.start()
    try:
        listens = re.compile(r" HTTPS: listening on [\d.]+:(\d+)\n")
        wait_until(lambda: listens.search(broker.said()), "it listens for HTTPS")
        (port,) = listens.findall(broker.said())
        context = ssl.create_default_context(cafile=ca)
        with pytest.raises((ssl.SSLError, ConnectionError)):  # without a certificate
            ask(int(port), context)
        context.load_cert_chain(certificate, key)
        assert ask(int(port), context) == (200, b"OK")
        broker.stop()
    finally:
        broker.close()


def ask(port: int, context: ssl.SSLContext) -> tuple[int, bytes]:
    """GET /ping"""
    connection = http.client.HTTPSConnection(HOST, port, timeout=ANSWER_SECONDS, context=context)
    try:
        connection.request("GET", "/ping")
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()

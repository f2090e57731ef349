"""
What clients cannot do: each says so by itself, once the broker has agreed to it.

They leave connections open that they have given up, so each attempt is a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

from tests.clients.conftest import UPGRADES
from tests.process import NsqdProcess
from tests.wire import ANSWER_SECONDS, HOST

ANSQ = """
features = ansq.ConnectionFeatures(**asked)
options = ansq.ConnectionOptions(features=features, auto_reconnect=False)
asyncio.run(ansq.create_writer([f"{host}:{port}"], options))
"""
ASYNCNSQ = "asyncio.run(asyncnsq.create_writer(host, port, **asked))"
GNSQ = "gnsq.Producer(f'{host}:{port}', tls_options={}, **asked).start()"

UNABLE = [
    ("ansq", ANSQ, "tls", "NotImplementedError: Upgrade to TLSv1 not implemented yet"),
    ("ansq", ANSQ, "snappy", "NotImplementedError: Upgrade to snappy not implemented yet"),
    ("ansq", ANSQ, "deflate", "NotImplementedError: Upgrade to deflate not implemented yet"),
    ("asyncnsq", ASYNCNSQ, "tls", "create_connection() got an unexpected keyword argument 'loop'"),
    ("gnsq", GNSQ, "tls", "KeyError: <gnsq.nsqd.NsqdTCPClient"),
    ("gnsq", GNSQ, "snappy", "KeyError: <gnsq.nsqd.NsqdTCPClient"),
    ("gnsq", GNSQ, "deflate", "KeyError: <gnsq.nsqd.NsqdTCPClient"),
]
"""Client, what to try, with which upgrade, and the error. gnsq's Producer: see UpgradedProducer in test_gnsq."""


def test_they_say_that_they_cannot(nsqd: NsqdProcess) -> None:
    attempts = []
    for client, script, upgrade, error in UNABLE:
        asked = f"host, port, asked = {HOST!r}, {nsqd.tcp_port}, {UPGRADES[upgrade]}"
        command = [sys.executable, "-c", f"import asyncio, {client}\n{asked}\n{script}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        attempts.append((process, f"{client} {upgrade}", error))
    for process, attempt, error in attempts:
        _, said = process.communicate(timeout=ANSWER_SECONDS)
        assert process.returncode != 0, attempt
        assert error in said, f"{attempt}: {said}"

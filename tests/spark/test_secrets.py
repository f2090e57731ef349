"""Secrets: where they are read, and that Spark shows them nowhere."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark import SparkFiles
from pyspark_nsq.channel.sample import take
from pyspark_nsq.errors import OptionError, ReadError
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.security import Security
from pyspark_nsq.sink.publisher import Publisher

from nsqtw.auth.secret_hash import Recipe
from tests.process import ForkedNsqd, NsqdProcess, starting
from tests.spark import secret_job
from tests.spark.fake_nsqd import FakeNsqd
from tests.spark.test_publisher import batch, options
from tests.wire import ANSWER_SECONDS, HOST

SECRET = "xyzzy-plugh"
CHEAP = Recipe("scrypt", (16, 1, 1), b"salt")
GRANT = """
[[client]]
identity = "spark{number}"
secret = "{secret}"
[[client.grant]]
topic = ".*"
permissions = ["publish", "subscribe", "admin"]
"""


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    assert Security(auth_secret_file=str(file)).secret() == SECRET


def test_a_file_among_those_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nsq.secret").write_text(SECRET)
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    assert Security(auth_secret_file="nsq.secret").secret() == SECRET


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSQ_SECRET", SECRET)
    assert Security(auth_secret_env="NSQ_SECRET").secret() == SECRET


def test_a_task_reads_the_secret_anew(nsqd: FakeNsqd, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for secret in ("old", "new"):
        file.write_text(secret)
        with Publisher(options(nsqd, authSecretFile=str(file))) as publisher:
            publisher.submit(batch(b"a"))
    assert {"Bearer old", "Bearer new"} == nsqd.authorizations


@pytest.mark.parametrize("held", [b"", b"\n", b"two words", b"two\nlines", b"\xff\xfe"])
def test_a_file_without_a_secret_is_named_and_not_shown(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(held)
    with pytest.raises(OptionError) as caught:
        Security(auth_secret_file=str(file)).secret()
    expected = f'option "authSecretFile": {file} must hold one line of printable ASCII without spaces'
    assert expected == str(caught.value)


@pytest.mark.parametrize(
    ("security", "said"),
    [
        (Security(auth_secret_file="/no/such"), 'option "authSecretFile": cannot read /no/such: No such file'),
        (Security(auth_secret_env="NO_SUCH"), "variable NO_SUCH is not set .* spark.executorEnv.NO_SUCH"),
    ],
)
def test_a_secret_that_is_not_there(security: Security, said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        security.secret()
    assert "\n" not in str(caught.value)


def test_a_channel_that_lacks_its_secret_says_so(real_nsqd: NsqdProcess) -> None:
    given = {"nsqdTcpAddresses": f"{HOST}:{real_nsqd.tcp_port}", "topic": "t", "channel": "c", "idleTimeoutMs": "60000"}
    with pytest.raises(ReadError, match='option "authSecretFile": cannot read /no/such'):
        take(ChannelOptions.parse(given | {"authSecretFile": "/no/such"}))


def test_what_travels_with_the_job_holds_no_secret_from_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSQ_SECRET", SECRET)
    given = options("h:1", authSecretEnv="NSQ_SECRET")
    assert given.secret() == SECRET
    assert SECRET not in repr(vars(given))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[NsqdProcess]:
    """A broker that lets in who has one of the secrets of `secret_job`. Its topic t has a log and a channel c."""
    grants = tmp_path / "grants.toml"
    hashed = [CHEAP.line(secret.encode()) for secret in (secret_job.SECRET, secret_job.FROM_FILE, secret_job.FROM_ENV)]
    grants.write_text("".join(GRANT.format(number=number, secret=secret) for number, secret in enumerate(hashed)))
    with starting(tmp_path / "broker", ForkedNsqd) as start:
        broker = start(f"--auth=static:{grants}")
        with closing(http.client.HTTPConnection(HOST, broker.http_port, timeout=ANSWER_SECONDS)) as connection:
            for order in (
                "topic/create?topic=t",
                "channel/create?topic=t&channel=c",
                "v2/topic/retention?topic=t&time=1h",
            ):
                connection.request("POST", f"/{order}", headers={"Authorization": f"Bearer {secret_job.SECRET}"})
                answer = connection.getresponse()
                assert (answer.status, answer.read() * (answer.status != 200)) == (200, b""), order
        yield broker


@pytest.mark.timeout(900)
def test_spark_shows_no_secret_anywhere(guarded: NsqdProcess, tmp_path: Path) -> None:
    """In a Spark of its own, with web pages and an event log: `secret_job` looks at all of it."""
    job = [sys.executable, "-m", "tests.spark.secret_job", str(tmp_path)]
    done = subprocess.run(
        [*job, str(guarded.tcp_port), str(guarded.http_port)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-5000:]
    looked_at = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert {"places", "found", "control"} == looked_at.keys()
    assert looked_at["found"] == "-"
    assert int(looked_at["places"]) > 40
    assert {"event-log", "/environment/", "/jobs/"} < set(looked_at["control"].split())

"""The backend and the protocol of docs/how-to/plugin-*.md: their code is taken from the pages."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.process import Counts, NsqdProcess
from tests.wire import ANSWER_SECONDS, HOST, Message

ROOT = Path(__file__).parent.parent
CODE = re.compile(r"^```python\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_WAITING = """
import os
os.fsync = os.sync = lambda *descriptor: None
"""
"""How fast the disk of this machine is, is not what the suite asks."""
BODIES = [b"%05d" % number for number in range(100)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The distribution that the pages show, file by file."""
    directory = tmp_path / "project"
    for page in ("plugins", "plugin-backend", "plugin-protocol"):
        for name, code in CODE.findall((ROOT / f"docs/how-to/{page}.md").read_text("utf-8")):
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code, "utf-8")
    return directory


@pytest.fixture
def installed(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, where nsqtw finds it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (project, ROOT))))
    return project


@pytest.fixture
def of_disk(installed: Path, tmp_path: Path) -> Path:
    """A data path of the backend disk, with messages."""
    with closing(NsqdProcess(tmp_path / "disk")) as nsqd:
        nsqd.start()
        nsqd.publish("t", BODIES)
        nsqd.kill()
    return nsqd.data_path


@pytest.fixture
def nsqd(installed: Path, tmp_path: Path) -> Iterator[NsqdProcess]:
    """A broker with that backend installed."""
    process = NsqdProcess(tmp_path, "--backend=paper:2", "--protocol=V2,LINES")
    try:
        process.start()
        yield process
        if process.runs:
            process.stop()
    finally:
        process.close()


def consume(nsqd: NsqdProcess) -> list[Message]:
    """All that is ready, finished, which is known when it returns."""
    with nsqd.client() as client:
        client.sub("t", "c", ready=10)
        messages = client.drain(len(BODIES))
        client.cls()
    return messages


def test_it_passes_the_suite(project: Path) -> None:
    (project / "conftest.py").write_text(NO_WAITING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (project, ROOT)))}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(project), str(project)]
    done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d\d passed", done.stdout, re.MULTILINE), done.stdout


def test_a_broker_keeps_its_promises_with_it(nsqd: NsqdProcess) -> None:
    """Also what is in flight and deferred when it is killed; what is finished is trimmed."""
    nsqd.create("t", "c")
    nsqd.publish("t", BODIES)
    with nsqd.client() as client:
        client.dpub("t", 3_600_000, b"later")
        client.sub("t", "c", ready=10)
        in_flight = client.take(10)
        nsqd.store()
        nsqd.kill()
    nsqd.start()
    assert nsqd.counts("t", "c") == Counts(100, 0, 1)
    received = consume(nsqd)
    assert sorted(message.body for message in received) == BODIES
    assert {message.attempts for message in received if message.id in {one.id for one in in_flight}} == {2}
    assert nsqd.counts("t", "c") == Counts(0, 0, 1)
    assert (nsqd.data_path / "paper2").is_dir()


def nsqtw(*words: object) -> tuple[int, str]:
    """The exit code and the output of a command that finds what the environment says."""
    words = (Path(sys.executable).with_name("nsqtw"), *words)
    done = subprocess.run(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def test_fsck_and_backup_know_its_files(nsqd: NsqdProcess, tmp_path: Path) -> None:
    nsqd.create("t", "c")
    nsqd.publish("t", BODIES)
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    code, said = nsqtw("backup", nsqd.data_path, backup, f"--nsqd-http-address={HOST}:{nsqd.http_port}")
    assert code == 0 and said.endswith(" MB, backend paper:2\n")
    nsqd.kill()
    code, said = nsqtw("restore", backup, restored)
    assert code == 0 and said.endswith(" --backend=paper:2\n")
    for path in (nsqd.data_path, restored):
        code, said = nsqtw("fsck", path)
        assert code == 0 and re.fullmatch(
            r"1 topic, 0 log files, \d+ good records?, 100 messages, 0 bytes; 0 findings\n", said
        )
    file = restored / "paper2" / b"t".hex()
    (restored / "paper2").rename(restored / "paper")
    (restored / "manifest.json").write_text('{"backend":"disk"}')
    code, said = nsqtw("fsck", restored)
    assert code == 1 and "100 stored messages of 1 topics of the backend 'paper', which a broker with" in said
    nsqtw("fsck", restored, "--repair")
    assert (restored / "damaged.d/1/paper" / file.name).exists()
    (nsqd.data_path / "paper2" / file.name).write_bytes(b"")
    assert f"damaged topic: topic t, {nsqd.data_path}/paper2/{file.name}: all" in nsqtw("fsck", nsqd.data_path)[1]


def test_what_does_not_tell_its_files_is_named(
    nsqd: NsqdProcess, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nsqd.publish("t", BODIES)
    nsqd.kill()
    assert nsqtw("backup", nsqd.data_path, tmp_path / "first")[0] == 0
    plugin = project / "twisted/plugins/nsq_paper_plugin.py"
    plugin.write_text(plugin.read_text().replace('    files="nsq_paper.files.PaperFiles",\n', ""))
    why = "the plugin of the backend 'paper' has no IBackendFiles, see docs/how-to/plugin-backend.md\n"
    code, said = nsqtw("fsck", nsqd.data_path)
    assert (code, said.splitlines(keepends=True)[0]) == (
        0,
        f"the messages of the backend 'paper:2' are not checked: {why}",
    )
    refused = "the messages are kept by the backend 'paper:2', of which nsqtw can make no backup"
    assert nsqtw("backup", nsqd.data_path, tmp_path / "backup") == (1, f"nsqtw backup: {refused}: {why}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    why = "the backend 'paper' is not installed\n"
    assert nsqtw("fsck", nsqd.data_path)[1].startswith(f"the messages of the backend 'paper:2' are not checked: {why}")
    assert nsqtw("restore", tmp_path / "first", tmp_path / "new") == (
        1,
        f"nsqtw restore: a backup of the backend 'paper:2' cannot be used: {why}",
    )


@pytest.mark.parametrize(
    "fault",
    [
        'self.directory = f"paper{int(argument)}"',
        'self.directory = f"paper{argument}"; self.owns = self.check = self.copied_files = None',
    ],
)
def test_a_fault_of_a_plugin_is_none_of_other_data_paths(
    fault: str, of_disk: Path, project: Path, tmp_path: Path
) -> None:
    files = project / "nsq_paper/files.py"
    files.write_text(files.read_text().replace('self.directory = f"paper{argument}"', fault))
    assert nsqtw("fsck", of_disk)[0] == 0
    assert nsqtw("backup", of_disk, tmp_path / "backup")[0] == 0
    assert nsqtw("restore", tmp_path / "backup", tmp_path / "new")[0] == 0


def test_a_backup_has_only_files_that_a_restore_takes(nsqd: NsqdProcess, project: Path, tmp_path: Path) -> None:
    nsqd.publish("t", BODIES)
    nsqd.kill()
    files = project / "nsq_paper/files.py"
    files.write_text(files.read_text().replace("if self.owns(name)]", "] + [CopiedFile('paper2/a/b', 'changing')]"))
    refused = "nsqtw backup: the backend 'paper:2' names a file that is none of it: 'paper2/a/b'\n"
    assert nsqtw("backup", nsqd.data_path, tmp_path / "backup") == (1, refused)


def test_a_name_that_two_plugins_have_is_none_of_other_data_paths(of_disk: Path, project: Path) -> None:
    plugins = project / "twisted/plugins"
    (plugins / "second_paper_plugin.py").write_text((plugins / "nsq_paper_plugin.py").read_text())
    assert nsqtw("fsck", of_disk)[0] == 0


def test_the_setup_py_of_the_page_builds_the_plugin(project: Path, tmp_path: Path) -> None:
    words = [sys.executable, "setup.py", "-q", "build", "--build-base", str(tmp_path / "build")]
    subprocess.run(words, cwd=project, check=True)
    built = {path.name for path in (tmp_path / "build").rglob("*.py")}
    assert {"storage.py", "lines.py", "nsq_paper_plugin.py"} <= built


@contextmanager
def speaking_lines(nsqd: NsqdProcess) -> Iterator[IO[bytes]]:
    with (
        socket.create_connection((HOST, nsqd.tcp_port), ANSWER_SECONDS) as connection,
        connection.makefile("rwb", buffering=0) as lines,
    ):
        lines.write(b"LINE")
        yield lines


def says(lines: IO[bytes], *said: bytes) -> bytes:
    """What is answered to these lines, one for each of them."""
    lines.write(b"".join(line + b"\n" for line in said))
    return b"".join(lines.readline() for _ in said)


def test_a_protocol_of_somebody_elses_stands_beside_v2(nsqd: NsqdProcess) -> None:
    """Each delivers what the other took; what was answered with OK outlives a kill, and so does the new channel."""
    with speaking_lines(nsqd) as lines, nsqd.client() as client:
        assert says(lines, b"PUT t first", b"PUT t second", b"PUT b@d x", b"PUT t") == (
            b'OK\nOK\nERROR E_BAD_TOPIC PUB topic name "b@d" is not valid\nERROR what?\n'
        )
        client.pub("t", b"third")
        assert says(lines, b"GET t c") == b"OK\n"
        *_, first = lines.readline().split(b" ", 2)
        assert first == b"first\n"
    nsqd.kill()
    nsqd.start()
    with nsqd.client() as client:
        client.sub("t", "c", ready=10)
        assert [message.body for message in client.drain(3)] == [b"first", b"second", b"third"]


def test_it_gives_the_next_text_when_the_one_before_is_done(nsqd: NsqdProcess) -> None:
    with speaking_lines(nsqd) as lines:
        assert says(lines, b"GET t c") == b"OK\n"
        nsqd.publish("t", [b"a", b"b"])
        text, message_id, body = lines.readline().split()
        assert (text, body) == (b"TEXT", b"a")
        assert says(lines, b"DONE " + message_id).endswith(b" b\n")
        assert (
            says(lines, b"DONE 0123456789abcdef")
            == b"ERROR E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight\n"
        )
        assert [one["version"] for one in nsqd.stats("t")[0]["channels"][0]["clients"]] == ["LINES"]


def refused_lines(nsqd: NsqdProcess) -> list[str]:
    """What the log says of refusals, without the address."""
    return re.findall(r"ERROR: \[\S+\] - (.*)", nsqd.said())


def test_auth_and_limits_hold_for_it(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The grants are those of docs/how-to/auth.md: the shop may publish to orders, the operator may do everything."""
    (grants,) = re.findall(
        r"^```toml\n# grants.toml\n(.*?)^```$", (ROOT / "docs/how-to/auth.md").read_text("utf-8"), re.M | re.S
    )
    path = tmp_path / "grants.toml"
    path.write_text(grants, "utf-8")
    path.chmod(0o600)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (project, ROOT))))
    process = NsqdProcess(
        tmp_path, "--protocol=V2,LINES", f"--auth=static:{path}", "--max-msg-size=100", "--http-auth=off"
    )
    try:
        process.start()
        with speaking_lines(process) as lines:
            first = b"ERROR E_AUTH_FIRST AUTH required before "
            assert says(lines, b"PUT orders x", b"GET orders mail") == first + b"PUB\n" + first + b"SUB\n"
            assert says(lines, b"AUTH wrong") == b"ERROR E_AUTH_FAILED AUTH failed\n"
        with speaking_lines(process) as lines:
            unauthorized = b'ERROR E_UNAUTHORIZED AUTH failed for %s on "%s" "%s"\n'
            assert says(lines, b"AUTH shop-secret", b"PUT orders shoes", b"PUT mail x", b"GET orders mail") == (
                b"OK\nOK\n" + unauthorized % (b"PUB", b"mail", b"") + unauthorized % (b"SUB", b"orders", b"mail")
            )
            assert says(lines, b"PUT orders ", b"PUT orders " + b"x" * 101) == (
                b"ERROR E_BAD_MESSAGE PUB invalid message body size 0\n"
                b"ERROR E_BAD_MESSAGE PUB message too big 101 > 100\n"
            )
        with speaking_lines(process) as lines:
            assert says(lines, b"AUTH operator-secret", b"GET orders mail") == b"OK\nOK\n"
            assert lines.readline().endswith(b" shoes\n")
        assert [one["message_count"] for one in process.stats("orders")] == [1]
        assert refused_lines(process) == [
            "E_AUTH_FIRST AUTH required before PUB",
            "E_AUTH_FIRST AUTH required before SUB",
            "E_AUTH_FAILED AUTH failed",
            'E_UNAUTHORIZED AUTH failed for PUB on "mail" "" (identity shop)',
            'E_UNAUTHORIZED AUTH failed for SUB on "orders" "mail" (identity shop)',
            "E_BAD_MESSAGE PUB invalid message body size 0 (identity shop)",
            "E_BAD_MESSAGE PUB message too big 101 > 100 (identity shop)",
        ]
        process.stop()
    finally:
        process.close()

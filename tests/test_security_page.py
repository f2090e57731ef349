"""docs/how-to/security.md: its config makes a broker as the page says, its commands can be run, its options exist."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import shutil
import ssl
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nsqtw.options.broker import BY_FLAG, BY_KEY
from nsqtw.options.command_line import OTHER_FLAGS
from tests.admin.process import AdminProcess
from tests.certificates import Certificates
from tests.process import wait_until
from tests.wire import ANSWER_SECONDS, HOST, Client, Closed, Refused, sized

PAGE = (Path(__file__).parent.parent / "docs/how-to/security.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRIVATE_ADDRESS = re.compile(r"\b10\.0\.0\.5:\d+")
LISTENS = re.compile(r" (TCP|HTTP|HTTPS): listening on [\d.]+:(\d+)\n")
PROGRAMS = Path(sys.executable).parent


def files() -> dict[str, str]:
    """The files that the page shows, by the name in their first line."""
    texts = [text for language, text in BLOCK.findall(PAGE) if language == "toml"]
    return {re.split("[ ,\n]", text)[1]: text for text in texts}


def commands() -> list[str]:
    """The command lines of the page."""
    return [line for language, text in BLOCK.findall(PAGE) if not language for line in text.splitlines()]


class Machine:
    """The machine of the page: its directories are in `root`, its private address is this machine's own."""

    def __init__(self, root: Path, certificates: Certificates) -> None:
        self.root = root
        self.secret = ""
        self.config = root / "etc/nsqd/nsqd.toml"
        self.config.parent.mkdir(parents=True)
        (root / "var/lib").mkdir(parents=True)
        self.config.write_text(self.here(files()["nsqd.toml"]))
        for name, source in {
            "server.crt": certificates.server.certificate,
            "server.key": certificates.server.key,
            "ca.crt": certificates.authority.certificate,
            "clients-ca.crt": certificates.authority.certificate,
        }.items():
            shutil.copy(source, self.config.parent / name)

    def here(self, text: str) -> str:
        """What is said of the page's machine, for this one. No port is chosen in advance."""
        text = PRIVATE_ADDRESS.sub(f"{HOST}:0", text)
        return re.sub(r"/(etc/nsqd|var/lib/nsqd)\b", rf"{self.root}/\1", text)

    def run(self, line: str) -> str:
        """What a command of the page says; it must go well."""
        program, *words = shlex.split(self.here(line))
        if (PROGRAMS / program).exists():
            program = str(PROGRAMS / program)
        done = subprocess.run([program, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def hash_secret(self, line: str) -> None:
        """Put a secret into the page's file of grants."""
        said = re.fullmatch(r"# the secret: (\S+)\n(secret = .*)\n", self.run(line))
        assert said is not None
        self.secret = said[1]
        text = re.sub(r"^secret = .*$", lambda _: said[2], files()["grants.toml"], flags=re.MULTILINE)
        (self.config.parent / "grants.toml").write_text(text)

    def curl(self, line: str, ports: dict[str, int]) -> tuple[int, bytes]:
        """Status and body that a curl would get, with the secret that was made in the place of SECRET."""
        found = re.fullmatch(r"curl --cacert (\S+) -H '(\S+): (.*)' https://\S+?:\d+(/\S+)", line)
        assert found is not None, line
        wants = ssl.create_default_context(cafile=self.here(found[1]))
        connection = http.client.HTTPSConnection(HOST, ports["HTTPS"], timeout=ANSWER_SECONDS, context=wants)
        try:
            connection.request("GET", found[4], headers={found[2]: found[3].replace("SECRET", self.secret)})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


class Running:
    """A broker that a command of the page has started."""

    def __init__(self, log: Path, process: subprocess.Popen[bytes]) -> None:
        self._log = log
        self._process = process
        wait_until(lambda: self._process.poll() is not None or {"TCP", "HTTPS"} <= set(self.ports()), "it listens")
        assert self._process.poll() is None, self.said()

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def ports(self) -> dict[str, int]:
        """Where it listens, and for what."""
        return {name: int(port) for name, port in LISTENS.findall(self.said())}

    def client(self) -> Client:
        return Client(self.ports()["TCP"])


@contextmanager
def started(machine: Machine, line: str) -> Iterator[Running]:
    program, *words = shlex.split(machine.here(line))
    log = machine.root / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen([str(PROGRAMS / program), *words], stdin=subprocess.DEVNULL, stderr=stderr)
    try:
        broker = Running(log, process)
        yield broker
        process.terminate()
        process.wait(ANSWER_SECONDS)
        assert "Traceback" not in broker.said(), broker.said()
    finally:
        process.kill()
        process.wait()


def command(start: str) -> str:
    """The command line of the page that starts so; the shortest of several."""
    return min((line for line in commands() if line.startswith(start)), key=len)


@pytest.fixture
def machine(tmp_path: Path, certificates: Certificates) -> Machine:
    """Set up with the commands of the page."""
    made = Machine(tmp_path, certificates)
    made.run(command("mkdir"))
    made.hash_secret(command("nsqtw hash-secret"))
    made.run(command("chmod 600"))
    return made


def auth(client: Client, secret: str) -> str:
    """Who that is."""
    identity: str = json.loads(client.ask(b"AUTH\n" + sized(secret.encode())))["identity"]
    return identity


def test_the_config_keeps_everybody_out_who_is_not_meant(machine: Machine, certificates: Certificates) -> None:
    wants = ssl.create_default_context(cafile=certificates.authority.certificate)
    with started(machine, command("nsqd --config")) as broker:
        for line in ("WARNING", "ERROR", " is open"):
            assert line not in broker.said(), broker.said()
        assert set(broker.ports()) == {"TCP", "HTTPS"}

        with broker.client() as plain, pytest.raises(Refused, match=r"^E_INVALID cannot PUB .* .TLS required.$"):
            plain.pub("orders", b"x")
        with broker.client() as plain, pytest.raises(Refused, match=r"^E_INVALID cannot AUTH .* .TLS required.$"):
            auth(plain, machine.secret)
        with broker.client() as nobody, pytest.raises(Refused, match=r"^E_AUTH_FIRST"):
            nobody.upgrade(wants)
            nobody.pub("orders", b"x")
        with broker.client() as stranger, pytest.raises(Refused, match=r"^E_AUTH_FAILED"):
            stranger.upgrade(wants)
            auth(stranger, "a guess")
        with broker.client() as shop:
            shop.upgrade(wants)
            assert auth(shop, machine.secret) == "shop"
            shop.pub("orders", b"x")
            with pytest.raises(Refused, match=r"^E_UNAUTHORIZED"):
                shop.pub("mails", b"x")

        line = command("curl")
        assert machine.curl(line.replace("SECRET", "a guess"), broker.ports())[0] == 401
        status, body = machine.curl(line, broker.ports())
        assert (status, b"orders" in body) == (200, True)

        found = [machine.root / "var/lib/nsqd", *(machine.root / "var/lib/nsqd").rglob("*")]
        assert len(found) > 1
        assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o700}
        assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}


def test_with_certificates_who_has_none_is_not_even_asked(machine: Machine, certificates: Certificates) -> None:
    with machine.config.open("a") as config:
        config.write(machine.here(files()["certificates.toml"]))
    wants = ssl.create_default_context(cafile=certificates.authority.certificate)
    with started(machine, command("nsqd --config")) as broker:
        with broker.client() as nobody, pytest.raises((ssl.SSLError, Closed, ConnectionError)):
            nobody.upgrade(wants)
            auth(nobody, machine.secret)
        wants.load_cert_chain(*certificates.client)
        with broker.client() as shop:
            shop.upgrade(wants)
            assert auth(shop, machine.secret) == "shop"
            shop.pub("orders", b"x")


def test_the_config_can_be_printed(machine: Machine) -> None:
    printed = tomllib.loads(machine.run(next(line for line in commands() if "--print-config" in line)))
    given = tomllib.loads(machine.config.read_text())
    assert {key: printed[key] for key in given} == given


def test_what_is_told_in_passing_can_be_done_too(machine: Machine) -> None:
    lines = re.findall(r"`((?:chmod|nsqd|nsqtw) [^`\n]+)`", BLOCK.sub("", PAGE))
    assert len(lines) > 3
    for line in lines:
        machine.run(line)


def test_a_name_is_allowed(tmp_path: Path) -> None:
    *_, option = command("nsqadmin").split()
    admin = AdminProcess(tmp_path, "--nsqd-http-address=127.0.0.1:1", option)
    try:
        admin.start()
        for host, status in ((option.partition("=")[2], 200), ("evil.example", 403)):
            assert admin.get("/ping", Host=host).status == status
    finally:
        admin.close()


def test_every_command_in_a_block_is_tried_above() -> None:
    starts = ("mkdir", "nsqtw hash-secret", "chmod 600", "nsqd --config", "curl", "nsqadmin")
    tried = [command(start) for start in starts]
    assert sorted(commands()) == sorted([*tried, f"{command('nsqd --config')} --print-config"])


def test_every_option_and_key_on_the_page_exists() -> None:
    text = BLOCK.sub("", PAGE)
    flags = set(re.findall(r"`(?:nsqd )?--([a-z0-9-]+)", text))
    assert len(flags) > 20
    of_others = {"generate", "peer-secret-file"}
    assert flags - of_others <= set(BY_FLAG) | set(OTHER_FLAGS)
    for name in ("nsqd.toml", "certificates.toml"):
        assert set(tomllib.loads(files()[name])) <= set(BY_KEY)


def test_the_defaults_on_the_page_are_those_of_the_broker() -> None:
    rows = re.findall(r"^\| `--([a-z-]+)` \| (?:`([^`]*)`|empty) \|", PAGE, re.MULTILINE)
    assert len(rows) > 15
    assert rows == [(flag, BY_FLAG[flag].default) for flag, _ in rows]

"""The file of grants, its reload, and the line that a secret becomes."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from nsqtw.auth import secret_hash, static
from nsqtw.auth.fair_queue import Turns
from nsqtw.auth.secret_hash import Recipe, read_line
from nsqtw.auth.static import StaticAuthorizer
from nsqtw.cli.main import run_nsqtw
from nsqtw.errors import AuthError, AuthRefused
from nsqtw.rights import Credentials, Rights
from nsqtw.testing.authorizers import ANSWER_SECONDS, Asked

CHEAP = Recipe("scrypt", (16, 1, 1), b"salt")
CLIENT = """
[[client]]
identity = "{name}"
secret = "{line}"
[[client.grant]]
topic = "^{topic}$"
permissions = ["publish"]
"""


class Grants:
    """A file of grants, and an authorizer that has read it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "grants.toml"
        self.lines: list[str] = []
        self.write(a="orders")
        self.path.chmod(0o600)
        self.authorizer = StaticAuthorizer(str(self.path), self.log)

    def log(self, level: str, text: str, /, **fields: object) -> None:
        self.lines.append(f"{level}: {text}")

    def write(self, recipe: Recipe = CHEAP, **topics: str) -> None:
        """Clients with their name as the secret, and the topic each may publish to."""
        clients = [CLIENT.format(name=n, line=recipe.line(n.encode()), topic=t) for n, t in topics.items()]
        self.path.write_text("".join(clients))

    def ask(self, secret: bytes) -> Rights | AuthError:
        asked = Asked(self.authorizer, Credentials(secret))
        assert asked.wait(ANSWER_SECONDS)
        outcome: Rights | AuthError = asked.outcomes[0]
        return outcome

    def topics(self, secret: bytes, *names: str) -> list[str]:
        """Those it may publish to."""
        rights = self.ask(secret)
        return [] if isinstance(rights, AuthError) else [name for name in names if rights.allows("publish", name, "")]


@pytest.fixture
def grants(tmp_path: Path) -> Any:
    made = Grants(tmp_path)
    yield made
    made.authorizer.close()


def test_who_is_known_gets_what_the_file_says(grants: Grants) -> None:
    rights = grants.ask(b"a")
    assert not isinstance(rights, AuthError)
    assert (rights.identity, rights.count, rights.ttl) == ("a", 1, None)
    assert isinstance(grants.ask(b"b"), AuthRefused)


def test_a_secret_is_hashed_once(grants: Grants, monkeypatch: pytest.MonkeyPatch) -> None:
    assert grants.topics(b"a", "orders") == ["orders"]
    monkeypatch.setattr(Recipe, "hash", None)
    assert grants.topics(b"a", "orders") == ["orders"]


def test_a_wrong_one_is_hashed_once_for_all_that_share_a_salt(grants: Grants, monkeypatch: pytest.MonkeyPatch) -> None:
    grants.write(**{f"c{n}": "t" for n in range(20)})
    grants.authorizer.reload()
    hashed: list[bytes] = []
    monkeypatch.setattr(Recipe, "hash", lambda recipe, secret, size: hashed.append(secret) or b"no")
    assert isinstance(grants.ask(b"b"), AuthRefused)
    assert hashed == [b"b"]


def test_a_reload_changes_what_is_granted_and_takes_away(grants: Grants) -> None:
    assert grants.topics(b"a", "orders", "mails") == ["orders"]
    grants.write(a="mails", b="orders")
    assert grants.topics(b"a", "orders", "mails") == ["orders"]
    assert grants.authorizer.reload() is True
    assert grants.topics(b"a", "orders", "mails") == ["mails"]
    assert grants.topics(b"b", "orders", "mails") == ["orders"]
    grants.write(b="orders")
    grants.authorizer.reload()
    assert isinstance(grants.ask(b"a"), AuthRefused)


def test_a_file_that_cannot_be_read_changes_nothing(grants: Grants) -> None:
    assert grants.topics(b"a", "orders") == ["orders"]
    grants.path.write_text("[[client")
    with pytest.raises(AuthError, match=f"^{grants.path}: Expected"):
        grants.authorizer.reload()
    assert grants.topics(b"a", "orders") == ["orders"]
    grants.path.unlink()
    with pytest.raises(AuthError, match=r"no such file or directory$"):
        grants.authorizer.reload()
    assert grants.topics(b"a", "orders") == ["orders"]


def test_what_waits_to_be_hashed_has_a_bound(grants: Grants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "MAX_WAITING", 3)
    monkeypatch.setattr(grants.authorizer, "_turns", Turns(3))
    monkeypatch.setattr(grants.authorizer._thread, "submit", lambda *call: None)
    asked = [Asked(grants.authorizer, Credentials(b"%d" % n)) for n in range(4)]
    assert [len(one.outcomes) for one in asked] == [0, 0, 0, 1]
    assert str(asked[3].outcomes[0]) == "3 other secrets are being looked at"
    assert Asked(grants.authorizer, Credentials(b"1")).outcomes == []


@pytest.mark.parametrize("guessing", [("6.6.6.6",) * 3, ("2001:db8::1", "2001:db8::2", "2001:db8::f%eth0")])
def test_nobody_keeps_another_address_waiting_for_more_than_a_turn(
    grants: Grants, monkeypatch: pytest.MonkeyPatch, guessing: tuple[str, ...]
) -> None:
    """Whoever sends wrong secrets all the time would keep out all that are not known yet."""
    authorizer = grants.authorizer
    turns: list[Any] = []
    monkeypatch.setattr(authorizer, "_turns", Turns(3))
    monkeypatch.setattr(authorizer._thread, "submit", turns.append)
    guesses = [Asked(authorizer, Credentials(b"guess %d" % n, ip)) for n, ip in enumerate(guessing)]
    honest = Asked(authorizer, Credentials(b"a", "2001:db8:1::1"))
    assert [len(one.outcomes) for one in guesses] == [0, 0, 1], "the newest of the longest line"
    assert "other secrets are being looked at" in str(guesses[2].outcomes[0])
    for turn in turns[:2]:
        turn()
    assert [len(one.outcomes) for one in guesses] == [1, 0, 1]
    (rights,) = honest.outcomes
    assert rights.identity == "a"
    turns[2]()
    assert len(turns) == 3
    assert isinstance(guesses[1].outcomes[0], AuthRefused)


def test_many_salts_are_said(grants: Grants) -> None:
    grants.path.write_text(
        "".join(
            CLIENT.format(name=f"c{n}", line=Recipe("scrypt", (16, 1, 1), b"%d" % n).line(b"%d" % n), topic="t")
            for n in range(9)
        )
    )
    grants.authorizer.reload()
    (line,) = grants.lines
    assert "have 9 salts" in line
    assert grants.topics(b"7", "t") == ["t"]


def test_a_file_without_a_client_is_no_start_and_a_warning_later(grants: Grants, tmp_path: Path) -> None:
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    empty.chmod(0o600)
    with pytest.raises(AuthError, match=f"^{empty}: there is no client in it, so nobody could do anything; "):
        StaticAuthorizer(str(empty), grants.log)
    grants.path.write_text("")
    assert grants.authorizer.reload()
    assert grants.lines[-1:] == [f"warn: AUTH: there is no client in {grants.path}: nobody may do anything any more"]
    assert grants.topics(b"a", "orders") == []


def test_a_file_that_everybody_can_read_is_said(grants: Grants) -> None:
    assert grants.lines == []
    grants.path.chmod(0o644)
    grants.authorizer.reload()
    warning = f"--auth=static: every user of this machine can read {grants.path}: chmod 600 {grants.path}"
    assert grants.lines == [f"warn: {warning}"]


LINE = CHEAP.line(b"s")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[clients]]", "the file has no key 'clients', did you mean 'client'?"),
        ("client = 1", "client of the file must be tables, [[client]]"),
        ('[[client]]\nidentity = "a"', "client 1 ('a'): there is no secret; `nsqtw hash-secret` makes the line"),
        ('[[client]]\nsecret = "plain"', "client 1: secret is no hash by scrypt or pbkdf2-sha256"),
        ('[[client]]\nsecret = "scrypt:16:1:1:?:?"', "client 1: secret is no hash of a secret; `nsqtw hash-secret`"),
        ('[[client]]\nsecret = "scrypt:3:1:1:c2FsdA==:AAAA"', "client 1: secret is no hash by scrypt or pbkdf2-sha256"),
        ('[[client]]\nsecret = "scrypt:1073741824:8:1:c2FsdA==:' + "A" * 44 + '"', "client 1: secret is no hash"),
        (f'[[client]]\nsecret = "{LINE}"\nttl = "1"', "client 1: ttl is no time such as '10m'"),
        (f'[[client]]\nsecret = "{LINE}"\npassword = "x"', "client 1: a client has no key 'password'"),
        (f'[[client]]\nsecret = "{LINE}"\n[[client.grant]]\ntopic = "t"', "client 1: grant 1: topic and permissions"),
        (
            f'[[client]]\nsecret = "{LINE}"\n[[client.grant]]\ntopic = "("\npermissions = ["admin"]',
            "client 1: grant 1: pattern '(' cannot be used: missing ): (",
        ),
        (f'[[client]]\nsecret = "{LINE}"\n[[client]]\nsecret = "{LINE}"', "client 2: has the secret of another client"),
        ("\xff", "is no UTF-8 text"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_says_where(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "grants.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(AuthError) as error:
        StaticAuthorizer(str(path), lambda *line, **fields: None)
    assert str(error.value).startswith(f"{path}: {why}")
    assert "\n" not in str(error.value)
    assert LINE not in str(error.value) and "plain" not in str(error.value)


def test_both_kinds_of_hash_are_known() -> None:
    for recipe in (CHEAP, Recipe("pbkdf2-sha256", (1000,), b"salt")):
        found, hashed = read_line(recipe.line(b"secret"))
        assert found == recipe
        assert hashed == recipe.hash(b"secret") != recipe.hash(b"another")


def test_the_command_makes_a_line_of_what_comes_on_stdin(
    grants: Grants, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(secret_hash, "_DEFAULT_NUMBERS", (16, 1, 1))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"s3cret\n")))
    assert run_nsqtw(["hash-secret", "--salt-of", str(grants.path)]) == 0
    said = capsys.readouterr().out
    assert said == f'secret = "{CHEAP.line(b"s3cret")}"\n'


def test_the_command_makes_a_secret(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(secret_hash, "_DEFAULT_NUMBERS", (16, 1, 1))
    assert run_nsqtw(["hash-secret", "--generate"]) == 0
    first, second, _ = capsys.readouterr().out.split("\n")
    recipe, hashed = read_line(second.removeprefix('secret = "').removesuffix('"'))
    assert recipe.hash(first.removeprefix("# the secret: ").encode()) == hashed


@pytest.mark.parametrize(("given", "why"), [(b"\n", "a secret has 1 to 65536 bytes"), (b"x" * 70000, "a secret has 1")])
def test_what_is_no_secret_is_said(
    given: bytes, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert run_nsqtw(["hash-secret"]) == 1
    assert capsys.readouterr().err.startswith(f"nsqtw hash-secret: {why}")

"""The file that `--replicate=postgres:PATH` names; no text has a secret in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from nsqtw.errors import OptionError, ReplicaError
from nsqtw.plugins import find_replica_store
from nsqtw.replication.postgres.addresses import servers
from nsqtw.replication.postgres.settings import read_settings
from nsqtw.replication.store import IReplicaStore

SECRET = "s3cret-word"


def opened(path: Path | str, log: Any = lambda *arguments, **fields: None) -> IReplicaStore:
    factory, argument = find_replica_store(f"postgres:{path}")
    return factory.open(argument, 0.2, log)


def written(folder: Path, text: str) -> Path:
    path = folder / "postgres.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no dsn; write dsn = "),
        ("dsn", "is no TOML file; it needs dsn = "),
        (f'dsn = "{SECRET}', "is no TOML file; it needs dsn = "),
        (f'dns = "password={SECRET}"', "unknown key 'dns', did you mean 'dsn'?"),
        ('dsn = ""\nzzzz = 1', "unknown key 'zzzz', its keys are dsn, password_file, data_set"),
        (f'dsn = "host {SECRET}"', "dsn is no connection string of PostgreSQL; write dsn = "),
        (f'dsn = "passwort={SECRET}"', "dsn is no connection string of PostgreSQL; write dsn = "),
        (f'dsn = "postgresql://u:{SECRET}@[h"', "dsn is no connection string of PostgreSQL; write dsn = "),
        ("dsn = 5", "dsn must be a text in quotes, or a table; write dsn = "),
        (f'[dsn]\npasswort = "{SECRET}"', "dsn: unknown keyword 'passwort', did you mean 'password'?"),
        (f'[dsn]\npassword = ["{SECRET}"]', "dsn must have texts and integers"),
        ('dsn = ""\ndata_set = 5', "data_set must be a name of 1 to 64 letters, digits and .-_ in quotes"),
        ('dsn = ""\ndata_set = "a b"', "data_set must be a name of 1 to 64 letters, digits and .-_ in quotes"),
        ('dsn = ""\ndata_set = "removed x"', "data_set must be a name of 1 to 64 letters, digits and .-_ in quotes"),
        ('dsn = ""\npassword_file = 5', "password_file must be a path in quotes"),
        ('dsn = ""\npassword_file = "absent"', "password_file cannot be used - open "),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(OptionError) as caught:
        opened(path)
    line = str(caught.value)
    assert line.startswith("--replicate=postgres") and message in line
    assert str(tmp_path) in line
    assert SECRET not in line and "\n" not in line
    assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot be used - open .*absent: no such file or directory"):
        opened(tmp_path / "absent")
    with pytest.raises(OptionError, match=r"needs the path of a file: --replicate=postgres:/etc/"):
        opened("")


def test_without_psycopg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(OptionError, match=r"^--replicate=postgres needs psycopg 3: pip install nsqtw\[postgres\]$"):
        opened(written(tmp_path, 'dsn = ""'))


def test_what_a_file_says(tmp_path: Path) -> None:
    (tmp_path / "word").write_text(f"{SECRET}\n")
    text = 'data_set = "other"\npassword_file = "word"\n[dsn]\nhost = "h"\nport = 5433\n'
    settings = read_settings(str(written(tmp_path, text)), "--replicate=postgres")
    assert settings.parameters == {"host": "h", "port": "5433"}
    assert (settings.data_set, settings.password()) == ("other", SECRET)
    (tmp_path / "word").write_text("changed")
    assert settings.password() == "changed"
    settings = read_settings(str(written(tmp_path, f'dsn = "postgresql://u:{SECRET}@h/d"')), "--replicate=postgres")
    assert settings.parameters == {"user": "u", "password": SECRET, "host": "h", "dbname": "d"}
    assert settings.data_set == "nsqtw"
    assert SECRET not in repr(settings)


def test_files_that_everybody_can_read(tmp_path: Path) -> None:
    """A warning for each."""
    (tmp_path / "word").write_text("secret")
    path = written(tmp_path, 'dsn = "host=/nowhere"\npassword_file = "word"')
    lines: list[str] = []

    def log(level: str, text: str, /, **fields: object) -> None:
        lines.append(f"{level} {text}")

    for file, mode in (("postgres.toml", 0o600), ("word", 0o604)):
        (tmp_path / file).chmod(mode)
    opened(path, log)
    assert lines == [
        "warn --replicate=postgres, password_file: every user of this machine can read"
        f" {tmp_path}/word: chmod 600 {tmp_path}/word"
    ]


@pytest.mark.parametrize(
    "dsn",
    [
        "host=/nowhere password={}",
        "host=127.0.0.1 port=1 password={}",
        "host=127.0.0.1,/nowhere port=1,{} password={}",
        "postgresql://u:{}@127.0.0.1:1/d",
        "host=/nowhere/{} password={}",
        "host=/nowhere sslmode={} password={}",
    ],
)
def test_no_error_of_a_connection_has_the_password(tmp_path: Path, dsn: str) -> None:
    store = opened(written(tmp_path, f'dsn = "{dsn.replace("{}", SECRET)}"'))
    with pytest.raises(ReplicaError) as caught:
        store.data_set()
    assert str(caught.value).startswith("PostgreSQL")
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    store.close()


@pytest.mark.parametrize(
    ("parameters", "hosts"),
    [
        ({}, [("", "", "")]),
        ({"host": "a", "port": "1"}, [("a", "", "1")]),
        ({"host": "a,b", "port": "1"}, [("a", "", "1"), ("b", "", "1")]),
        ({"host": "a,b", "port": "1,2"}, [("a", "", "1"), ("b", "", "2")]),
        ({"host": "a,,c", "port": ",2,"}, [("a", "", ""), ("", "", "2"), ("c", "", "")]),
        ({"hostaddr": "1.1.1.1,::1"}, [("", "1.1.1.1", ""), ("", "::1", "")]),
        ({"host": "a,b", "hostaddr": "1.1.1.1,::1"}, [("a", "1.1.1.1", ""), ("b", "::1", "")]),
    ],
)
def test_the_servers_of_a_dsn(parameters: dict[str, str], hosts: list[tuple[str, str, str]]) -> None:
    found = servers({**parameters, "dbname": "d"})
    assert [tuple(one.get(key, "") for key in ("host", "hostaddr", "port")) for one in found] == hosts
    assert all(one["dbname"] == "d" for one in found)

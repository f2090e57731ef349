"""Contexts: the config file, and which cluster a command uses."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from nsqtw.cli.contexts import ClusterAccess, contexts_path, read_contexts
from nsqtw.cli.main import run_nsqtw
from nsqtw.errors import OptionError
from nsqtw.testing import Broker
from tests.cli.conftest import Nsqtw
from tests.process import ReservedPort

TWO = """\
# my clusters
current = "one"

[contexts.one]  # the first
nsqd_http_addresses = ["127.0.0.1:1"]

[contexts.two]
lookupd_http_addresses = ["127.0.0.1:2"]
tls_insecure = true
"""


def test_the_first_context_is_in_use_and_only_its_owner_reads_the_file(
    own_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_config.parent.chmod(0o755)
    assert run_nsqtw(["context", "add", "one", "--nsqd-http-address", "127.0.0.1:1"]) == 0
    assert capsys.readouterr().err == f"context 'one' is in {own_config}, and in use\n"
    assert run_nsqtw(["context", "add", "two", "--lookupd-http-address", "127.0.0.1:2"]) == 0
    assert capsys.readouterr().err == f"context 'two' is in {own_config}\n"
    assert stat.S_IMODE(own_config.stat().st_mode) == 0o600
    contexts = read_contexts({"NSQTW_CONTEXTS": str(own_config)})
    assert contexts.current == "one"
    assert contexts.by_name == {
        "one": ClusterAccess(nsqd_http_addresses=("127.0.0.1:1",)),
        "two": ClusterAccess(lookupd_http_addresses=("127.0.0.1:2",)),
    }


def test_a_change_keeps_comments_and_order(own_config: Path) -> None:
    own_config.write_text(TWO)
    assert run_nsqtw(["context", "use", "two"]) == 0
    assert own_config.read_text() == TWO.replace('current = "one"', 'current = "two"')
    assert run_nsqtw(["context", "add", "three", "--nsqd-http-address", "127.0.0.1:3"]) == 0
    assert own_config.read_text().startswith(TWO.replace('current = "one"', 'current = "two"'))
    assert run_nsqtw(["context", "remove", "two"]) == 0
    text = own_config.read_text()
    assert text.startswith("# my clusters\n")
    assert "[contexts.one]  # the first" in text
    assert "two" not in text
    assert read_contexts({"NSQTW_CONTEXTS": str(own_config)}).current == ""


def test_list_and_show(own_config: Path, capsys: pytest.CaptureFixture[str], nsqtw: Nsqtw) -> None:
    assert run_nsqtw(["context", "list"]) == 0
    assert capsys.readouterr().out == f"no contexts in {own_config}; 'nsqtw context add' makes one\n"
    own_config.write_text(TWO)
    rows = nsqtw("context", "list", "-o", "json").json
    assert [(row["name"], row["current"]) for row in rows] == [("one", True), ("two", False)]
    shown = nsqtw("context", "show", "two", "-o", "json").json
    assert shown == {"name": "two", "lookupd_http_addresses": ["127.0.0.1:2"], "tls_insecure": True}
    assert nsqtw("context", "show", NSQTW_CONTEXT="two").out.startswith("name: two\n")


@pytest.mark.parametrize(
    ("words", "complaint", "code"),
    [
        (["add", "one", "--nsqd-http-address", "x:1"], "there is a context 'one' already: --replace replaces it", 2),
        (["add", "new"], "a context needs --nsqd-http-address or --lookupd-http-address", 2),
        (["add", "new", "--nsqd-http-address", "x"], "address 'x' must be host:port", 2),
        (
            ["add", "new", "--nsqd-http-address", "x:1", "--tls-cert-file", "x"],
            "a client certificate needs --tls-cert-file and --tls-key-file",
            2,
        ),
        (
            ["add", "new", "--nsqd-http-address", "x:1", "--secret-file", "a", "--secret-variable", "b"],
            "a secret is in a file or in a variable, not in both",
            2,
        ),
        (["use", "onee"], "no context 'onee' in {path}, did you mean 'one'?", 3),
        (["remove", "zzz"], "no context 'zzz' in {path}; 'nsqtw context list' shows them", 3),
        (["show", "zzz"], "no context 'zzz' in {path}; 'nsqtw context list' shows them", 3),
    ],
)
def test_wrong_words(
    words: list[str], complaint: str, code: int, own_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_config.write_text(TWO)
    assert run_nsqtw(["context", *words]) == code
    output = capsys.readouterr()
    assert output.err.startswith(f"nsqtw: {complaint.format(path=own_config)}")
    assert output.err.count("\n") == 1
    assert own_config.read_text() == TWO


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("current = ", "Invalid value (at end of document)"),
        ("curent = 'one'", "unknown key 'curent', did you mean 'current'?"),
        ("current = 1", "current must be the name of a context"),
        ("current = 'one'", "current = 'one', and there is no [contexts.one]"),
        ("contexts = 1", "contexts must be tables, such as [contexts.prod]"),
        ("[contexts]\none = 1", "[contexts.one] must be a table"),
        ("[contexts.one]\nnsqd = ''", "[contexts.one] unknown key 'nsqd'"),
        ("[contexts.one]\nsecret_fil = ''", "[contexts.one] unknown key 'secret_fil', did you mean 'secret_file'?"),
        ("[contexts.one]\nsecret_file = 1", "[contexts.one] secret_file must be a text"),
        ("[contexts.one]\nnsqd_http_addresses = 'x'", "[contexts.one] nsqd_http_addresses must be a list of texts"),
        ("[contexts.one]\ntls_insecure = 'x'", "[contexts.one] tls_insecure must be true or false"),
    ],
)
def test_a_wrong_file_is_one_line_and_exit_code_2(
    text: str, complaint: str, own_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_config.write_text(text)
    assert run_nsqtw(["context", "list"]) == 2
    output = capsys.readouterr()
    assert output.err.startswith(f"nsqtw: config file {own_config}: {complaint}")
    assert output.err.count("\n") == 1


def test_the_place_of_the_file() -> None:
    assert contexts_path({"NSQTW_CONTEXTS": "/a/b"}) == Path("/a/b")
    assert contexts_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/nsqtw/config.toml")
    assert contexts_path({"HOME": "/h"}) == Path("/h/.config/nsqtw/config.toml")


def test_the_directory_of_the_file_is_made(tmp_path: Path, nsqtw: Nsqtw) -> None:
    done = nsqtw(
        "context", "add", "a", "--nsqd-http-address", "h:1", NSQTW_CONTEXTS="", XDG_CONFIG_HOME=str(tmp_path / "new")
    )
    assert done.code == 0
    assert (tmp_path / "new/nsqtw/config.toml").exists()


def test_which_cluster_a_command_uses(nsqd: Broker, nsqtw: Nsqtw, own_config: Path) -> None:
    """Options win over the option --context, this over the variable, this over the file."""
    own_config.write_text(
        f'current = "dead"\n[contexts.dead]\nnsqd_http_addresses = ["127.0.0.1:1"]\n'
        f'[contexts.live]\nnsqd_http_addresses = ["{nsqd.http_address}"]\n'
    )
    assert nsqtw("nodes").code == 4
    assert nsqtw("nodes", NSQTW_CONTEXT="live").code == 0
    assert nsqtw("--context", "live", "nodes").code == 0
    assert nsqtw("nodes", "--context", "dead", NSQTW_CONTEXT="live").code == 4
    assert nsqtw("nodes", "--nsqd-http-address", nsqd.http_address).code == 0
    assert nsqtw("--nsqd-http-address", nsqd.http_address, "nodes", "--context", "dead").code == 0


def test_secrets_come_from_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_text("from the file\n")
    assert ClusterAccess(secret_file=str(path)).secret() == "from the file"
    monkeypatch.setenv("A_SECRET", "from the variable")
    assert ClusterAccess(secret_variable="A_SECRET").secret() == "from the variable"
    with pytest.raises(OptionError, match="is not set"):
        ClusterAccess(secret_variable="ANOTHER_SECRET").secret()
    with pytest.raises(OptionError, match="no such file"):
        ClusterAccess(secret_file=str(tmp_path / "nowhere")).secret()


def test_variables_of_the_command_are_none_of_nsqd(nsqtw: Nsqtw) -> None:
    """nsqd warns of variables that look like its own and are not."""
    from nsqtw.options.environment import Environment

    assert Environment({"NSQTW_CONTEXT": "a", "NSQTW_CONTEXTS": "b"}).warnings() == []


def test_the_doctor_names_the_context_of_the_variable(
    own_config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = ReservedPort()
    for name in ("one", "two"):
        run_nsqtw(["context", "add", name, "--nsqd-http-address", f"127.0.0.1:{port.number}"])
    for words, variable, used in (([], "", "one"), ([], "two", "two"), (["--context", "one"], "two", "one")):
        monkeypatch.setenv("NSQTW_CONTEXT", variable)
        run_nsqtw(["doctor", *words])
        assert f"2 contexts, in use: {used}" in capsys.readouterr().out
    monkeypatch.delenv("NSQTW_CONTEXT")
    run_nsqtw(["context", "remove", "two"])
    run_nsqtw(["doctor"])
    assert "1 context, in use: one" in capsys.readouterr().out
    port.release()

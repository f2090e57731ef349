"""The words of `nsqtw`: help, version, and one line for whatever is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nsqtw import NSQ_VERSION, __version__
from nsqtw.cli.main import run_nsqtw
from nsqtw.cli.verbs import VERBS
from nsqtw.core import broker
from tests.cli.conftest import Nsqtw


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["frob"], "nsqtw: no such command 'frob' (try 'nsqtw --help')"),
        (["topc"], "nsqtw: no such command 'topc', did you mean 'topic'? (try 'nsqtw --help')"),
        (["topic", "frob"], "nsqtw topic: no such command 'frob' (try 'nsqtw topic --help')"),
        (["fsck"], "nsqtw fsck: missing argument 'DATA_PATH' (try 'nsqtw fsck --help')"),
        (["fsck", "a", "--frob"], "nsqtw fsck: no such option '--frob'"),
        (["fsck", "a", "--rep"], "nsqtw fsck: no such option '--rep' (did you mean "),
        (["fsck", "a", "b"], "nsqtw fsck: got unexpected extra argument (b) (try 'nsqtw fsck --help')"),
        (["-o", "xml", "topic", "list"], "nsqtw: invalid value for '-o' / '--output': 'xml' is not one of"),
        (["--context", "nowhere", "topic", "list"], "nsqtw: no context 'nowhere' in "),
        (["--nsqd-http-address", "nonsense", "topic", "list"], "nsqtw: address 'nonsense' must be host:port"),
        (["pub", "not a name", "x"], "nsqtw: no topic or channel can have the name 'not a name'"),
        (["pub", "t", ""], "nsqtw: a message has at least one byte"),
        (["pub", "t", "x", "--defer", "soon"], "nsqtw: --defer 'soon' must be a duration such as 30s or 5m"),
        (["pub", "t", "x", "--count", "0"], "nsqtw pub: invalid value for '--count': 0 is not in the range x>=1"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_line_and_exit_code_2_or_3(words: list[str], complaint: str, nsqtw: Nsqtw) -> None:
    done = nsqtw(*words)
    assert done.out == ""
    assert done.err.startswith(complaint)
    assert done.err.count("\n") == 1
    assert done.code == (3 if "nowhere" in complaint else 2)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb.words))
def test_every_verb_has_help(verb: object, capsys: pytest.CaptureFixture[str], own_config: Path) -> None:
    words = list(verb.words)  # type: ignore[attr-defined]
    assert run_nsqtw([*words, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: nsqtw {' '.join(words)} ")


def test_no_words_are_help_on_stderr_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_nsqtw([]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("Usage: nsqtw ")


def test_the_version_says_whether_the_hot_modules_are_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_nsqtw(["--version"]) == 0
    output = capsys.readouterr().out
    version, compiled, end = output.partition(", hot modules compiled")
    is_said = bool(compiled)
    assert version.startswith(f"nsqtw v{__version__} (for NSQ v{NSQ_VERSION}, python")
    assert version.strip().endswith(")") and end in ("", "\n")
    assert is_said == broker.__file__.endswith(".so")


def test_help_loads_neither_twisted_nor_rich() -> None:
    script = (
        "import sys; from nsqtw.cli.main import run_nsqtw; run_nsqtw(['pub', '--help']);"
        "print([name for name in ('twisted', 'rich', 'treq', 'tomlkit') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"

"""The reference page and the man page, and what they say."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from nsqtw.cli.commands import make_root
from nsqtw.cli.documentation import MAN_PAGE, PAGE, pages
from nsqtw.cli.failures import ExitCode, exit_code_of
from nsqtw.cli.verb import GROUPS, SECTIONS
from nsqtw.cli.verbs import VERBS
from nsqtw.errors import ConnectFailed, NotFound, NsqtwError, OptionError, PermissionRefused

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs/how-to/command-line.md"
COMMAND_LINES = [
    line
    for page in (HOW_TO, ROOT / "README.md", PAGE)
    for _, block in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if re.match(r"(?:\.venv/bin/)?nsqtw (?!.*(?:\[|OPTIONS))", line)
]


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.name)
def test_the_pages_are_up_to_date(page: Path) -> None:
    """`python -m nsqtw.cli.documentation` writes them."""
    assert page.read_text("utf-8") == pages()[page]


def test_the_man_page_has_no_warnings() -> None:
    done = subprocess.run(["man", "--warnings", "-l", str(MAN_PAGE)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    text = re.sub(".\b", "", done.stdout)
    for verb in VERBS:
        assert f"nsqtw {' '.join(verb.words)}" in text


def test_every_exit_code_is_documented() -> None:
    page, man = PAGE.read_text("utf-8"), MAN_PAGE.read_text("utf-8")
    for code in ExitCode:
        assert f"| {code.value} | {code.text} |" in page
        assert f"\\fB{code.value}\\fR" in man


def test_errors_have_exit_codes() -> None:
    codes = {
        OptionError("x"): ExitCode.WRONG_USAGE,
        NotFound("x"): ExitCode.NOT_FOUND,
        ConnectFailed("a", "x"): ExitCode.CANNOT_CONNECT,
        PermissionRefused("x"): ExitCode.REFUSED,
        NsqtwError("x"): ExitCode.FAILED,
    }
    assert {error: exit_code_of(error) for error in codes} == codes


def test_the_pages_have_command_lines() -> None:
    assert len(COMMAND_LINES) > 40


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_the_command_lines_of_the_pages_have_verbs_and_options_that_exist(line: str) -> None:
    words: list[str] = []
    for word in shlex.split(line, comments=True)[1:]:
        if word in ("|", "||", ">", "<", "&&"):
            break
        words.append(word)
    command: click.Command = make_root()
    context = command.make_context("nsqtw", words, resilient_parsing=False)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)


def test_declarations() -> None:
    assert {verb.section for verb in VERBS} <= set(SECTIONS)
    assert {verb.group for verb in VERBS} - {""} == set(GROUPS)
    assert len({verb.words for verb in VERBS}) == len(VERBS)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb.words))
def test_the_function_of_a_verb_takes_its_parameters(verb: object) -> None:
    import inspect
    from importlib import import_module

    module, _, name = verb.function.rpartition(":")  # type: ignore[attr-defined]
    signature = inspect.signature(getattr(import_module(module), name))
    signature.bind(None, **{parameter.name: None for parameter in verb.parameters})  # type: ignore[attr-defined]

"""The console script `nsqtw`. Every error is one line on stderr, and an exit code of `ExitCode`."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence

import click

from nsqtw.cli import PROGRAM
from nsqtw.cli.commands import make_root
from nsqtw.cli.failures import ExitCode, exit_code_of, explained
from nsqtw.errors import NsqtwError
from nsqtw.printing import complain, complain_lines, discard_stdout


def main() -> None:
    """The console script."""
    os.umask(0o077)  # what it copies holds messages
    code = run_nsqtw(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python's own end would print a traceback
    sys.exit(code)


def run_nsqtw(words: Sequence[str]) -> int:
    """Do what the words say. The exit code; what is wrong is one line on stderr."""
    try:
        code = make_root().main(list(words), PROGRAM, standalone_mode=False)
        return int(code or ExitCode.DONE)
    except click.exceptions.NoArgsIsHelpError as error:
        complain_lines(error.format_message())
        return ExitCode.WRONG_USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else PROGRAM
        _complain(f"{path}: {_lower(error.format_message())} (try '{path} --help')")
        return ExitCode.WRONG_USAGE
    except click.ClickException as error:
        _complain(f"{PROGRAM}: {_lower(error.format_message())}")
        return ExitCode.FAILED
    except BrokenPipeError:  # the reader of stdout has enough
        discard_stdout()
        return ExitCode.DONE
    except click.Abort:  # Ctrl-C before the verb
        return ExitCode.INTERRUPTED
    except NsqtwError as error:
        _show_traceback(words)
        shown = explained(error)
        _complain(f"{PROGRAM}: {shown}")
        return exit_code_of(shown)
    except Exception as error:
        _show_traceback(words)
        _complain(f"{PROGRAM}: unexpected {type(error).__name__}: {error} (--debug shows where; please report it)")
        return ExitCode.FAILED


def _complain(text: str) -> None:
    complain(" ".join(text.split("\n")))


def _lower(text: str) -> str:
    """Return a message of click as the end of a line."""
    text = (text[:1].lower() + text[1:]).rstrip(".")
    return text.replace(". Did you", ", did you").replace(". (Did you", " (did you")


def _show_traceback(words: Sequence[str]) -> None:
    if "--debug" in words:
        complain_lines(traceback.format_exc())

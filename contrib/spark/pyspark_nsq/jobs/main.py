"""The console script ``nsqtw-spark``. Every error is one line on stderr.

A job is a click command in a module of its own and one line in `_COMMANDS`. Modules of jobs are imported when their
command runs, so that ``nsqtw-spark --help`` starts without Spark.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click

from pyspark_nsq.errors import NsqSparkError
from pyspark_nsq.foreign_text import one_line, printable
from pyspark_nsq.jobs import PROGRAM
from pyspark_nsq.jobs.failures import explained

#: Each command with its line in the help. The module of that name, with underscores, has the command of that name.
_COMMANDS: dict[str, str] = {
    "archive": "Archive topics into a data lake, each message once.",
    "archive-compact": "Merge the small files of an archive.",
    "archive-files": "List the files of an archive, for other readers.",
    "archive-verify": "Compare an archive with the logs of its topics.",
    "etl": "Run a pipeline that a TOML file declares.",
    "profile": "Show rates, sizes, JSON fields and duplicates of topics.",
    "program": "Print the path of the program for spark-submit.",
    "replay": "Publish messages of an archive or a log again.",
}

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class _Jobs(click.Group):
    """The commands of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"pyspark_nsq.jobs.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS:
            near = get_close_matches(args[0], _COMMANDS, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"known are: {', '.join(_COMMANDS)}"
            raise click.UsageError(f'unknown job "{args[0]}"; {hint}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Jobs"):
            formatter.write_dl(list(_COMMANDS.items()) or [("(none)", "")])


@click.command(cls=_Jobs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def root(debug: bool) -> None:
    """Run a data pipeline between NSQ and a data lake on Apache Spark."""


def main() -> None:
    """Run the command line and exit."""
    code = run(sys.argv[1:])
    sys.exit(FAILED if _cannot_write() else code)


def run(words: Sequence[str]) -> int:
    """Run the command of these arguments. Return the exit code; an error is one line on stderr."""
    try:
        return int(root.main(list(words), PROGRAM, standalone_mode=False) or DONE)
    except click.exceptions.NoArgsIsHelpError as error:
        print(printable(error.format_message()), file=sys.stderr)
        return WRONG_USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else PROGRAM
        _complain(path, error.format_message())
        return WRONG_USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        if _cannot_write():
            return FAILED
        if "--debug" in words:
            traceback.print_exc()
        _complain(PROGRAM, explained(error))
        return WRONG_USAGE if isinstance(error, NsqSparkError) and error.is_usage else FAILED


def _cannot_write() -> bool:
    """Say when stdout cannot be written, and let it lead nowhere: Python flushes once more at its end."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _complain(PROGRAM, f"stdout cannot be written: {(error.strerror or str(error)).lower()}")
        return True
    return False


def _complain(path: str, text: str) -> None:
    print(one_line(f"{path}: {' '.join(text.split())}"), file=sys.stderr)

"""
The console script `nsqtw`: what is done with a broker's files beside the broker.

Exit codes: those of the command, and 2 when the words cannot be understood.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from attrs import frozen

from nsqtw.version import is_compiled, version_line

_WRONG_WORDS = 2


@frozen
class Command:
    """
    A subcommand. `function` is the dotted name of its function, which gets a keyword argument for each of `arguments`
    and returns the exit code; its module is imported when the command runs. `arguments` maps what argparse's
    `add_argument` gets as names to its other arguments.
    """

    name: str
    summary: str
    description: str
    function: str
    arguments: Mapping[str, Mapping[str, Any]]


COMMANDS = (
    Command(
        "backup",
        "copy a data path, while its broker runs",
        "Copies everything that a broker has stored: what was acknowledged before it began is in the copy. The broker"
        " goes on meanwhile, and keeps what it would delete. Exit code 0: the backup is complete; 1: there is none, and"
        " stderr says why; 2: wrong words; 3: it is complete, and has damage that the data path has.",
        "nsqtw.tools.backup.backup.run",
        {
            "directory": {"metavar": "DATA_PATH", "help": "what the broker has as --data-path"},
            "target": {"metavar": "TARGET", "help": "a directory that is not there yet, or empty"},
            "--nsqd-http-address": {
                "metavar": "ADDRESS",
                "default": "",
                "help": "the broker that uses the data path, as host:port or https://host:port; none if none runs",
            },
            "--secret-file": {"metavar": "FILE", "default": "", "help": "file with a secret that may administer it"},
            "--root-ca-file": {"metavar": "FILE", "default": "", "help": "authorities for its certificate (PEM)"},
            "--link": {
                "dest": "must_link",
                "action": "store_true",
                "help": "link finished log files where the file system can, instead of copying them",
            },
        },
    ),
    Command(
        "restore",
        "check a backup, and make it a data path",
        "Reads all of a backup and refuses it when anything in it has changed. Then copies it to DATA_PATH and checks"
        " it as fsck does. Exit code 0: it is there; 1: it is not, and stderr says why; 2: wrong words; 3: it is there,"
        " and has damage from before the backup.",
        "nsqtw.tools.backup.restore.run",
        {
            "backup": {"metavar": "BACKUP", "help": "what nsqtw backup has made"},
            "directory": {"metavar": "DATA_PATH", "help": "a directory that is not there yet, or empty"},
            "--replace": {
                "dest": "must_replace",
                "action": "store_true",
                "help": "move what is in DATA_PATH aside, to DATA_PATH.replaced.1",
            },
            "--check": {"dest": "must_only_check", "action": "store_true", "help": "only check the backup"},
        },
    ),
    Command(
        "fsck",
        "check a data path, and repair it",
        "Reads everything in a data path and says what is wrong: a line for each finding, then a summary."
        " Exit code 0: nothing is wrong; 1: something is, or a broker uses the data path; 2: wrong words, or no data"
        " path; 3: something was wrong, and all of it is repaired.",
        "nsqtw.tools.fsck.command.run",
        {
            "directory": {"metavar": "DATA_PATH", "help": "what the broker has as --data-path"},
            "--repair": {
                "dest": "must_repair",
                "action": "store_true",
                "help": "repair what can be repaired; what is removed is kept",
            },
        },
    ),
    Command(
        "hash-secret",
        "make the line of a secret for a file of grants",
        "Asks for a secret, or reads it from stdin, and prints its hash for the file of --auth=static.",
        "nsqtw.tools.hash_secret.run",
        {
            "--generate": {"action": "store_true", "help": "make a new secret, and print it, too"},
            "--salt-of": {"metavar": "FILE", "help": "hash it as the secrets in this file of grants are"},
        },
    ),
    Command(
        "health",
        "tell whether a daemon is ready",
        "Asks /readyz of nsqd, nsqlookupd or nsqadmin. Exit code 0: it is ready; 1: it is not, or does not answer, and"
        " a line says why; 2: wrong words.",
        "nsqtw.tools.health.run",
        {
            "address": {
                "metavar": "ADDRESS",
                "nargs": "?",
                "default": "",
                "help": "host:port or https://host:port; NSQTW_HEALTH_ADDRESS or 127.0.0.1:4151 unless given",
            },
            "--timeout": {"metavar": "SECONDS", "type": float, "default": 3.0, "help": "to wait for an answer; 3"},
            "--root-ca-file": {"metavar": "FILE", "default": "", "help": "authorities for its certificate (PEM)"},
        },
    ),
    Command(
        "migrate-backend",
        "move the messages of a data path to another storage backend",
        "Moves all messages of a data path from one storage backend to another, while no broker runs. Channels stay"
        " where they are. A run that was interrupted is finished by the same command. FROM and TO are as for --backend."
        " Exit code 0: all messages are in TO; 1: they are not, and stderr says why; 2: wrong words.",
        "nsqtw.tools.migrate_backend.run",
        {
            "--data-path": {
                "metavar": "PATH",
                "default": ".",
                "help": "what the broker has as --data-path; the working directory unless given",
            },
            "source": {"metavar": "FROM", "help": "the backend that has the messages: disk, sqlite, ..."},
            "target": {"metavar": "TO", "help": "the backend that is to have them"},
        },
    ),
)


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(_WRONG_WORDS, f"{self.prog}: {message} (try {self.prog} -h)\n")


def main() -> None:
    """The console script `nsqtw`."""
    os.umask(0o077)  # what it copies holds messages
    sys.exit(run_nsqtw(sys.argv[1:]))


def run_nsqtw(words: Sequence[str]) -> int:
    """Do what the words say. The exit code; SystemExit with it for -h and for wrong words."""
    arguments = vars(_parser().parse_args(words))
    module, _, function = arguments.pop("function").rpartition(".")
    return int(getattr(import_module(module), function)(**arguments))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="nsqtw", description="Tools for a broker's files.", allow_abbrev=False)
    version = version_line() + (", hot modules compiled" if is_compiled() else "")
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command_parser = commands.add_parser(
            command.name, help=command.summary, description=command.description, allow_abbrev=False
        )
        command_parser.set_defaults(function=command.function)
        for name, options in command.arguments.items():
            command_parser.add_argument(name, **options)
    return parser

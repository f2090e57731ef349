"""
The console script `nsqtw`: what is done with a broker's files beside the broker.

Exit codes: those of the command, and 2 when the words cannot be understood.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from nsqtw.version import is_compiled, version_line

_WRONG_WORDS = 2


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
    found = _parser().parse_args(words)
    # Who only asks for help does not wait for a broker's modules.
    if found.command == "hash-secret":
        from nsqtw.auth import hash_command

        return hash_command.run(found.salt_of, found.generate)
    from nsqtw.fsck.command import run

    return run(found.data_path, found.repair)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="nsqtw", description="Tools for a broker's files.", allow_abbrev=False)
    version = version_line() + (", hot modules compiled" if is_compiled() else "")
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    fsck = commands.add_parser(
        "fsck",
        help="check a data path, and mend it",
        description="Reads everything in a data path and says what is wrong: a line for each finding, then a summary."
        " Exit code 0: nothing is wrong (any more); 1: something is, or a broker uses the data path; 2: wrong words.",
        allow_abbrev=False,
    )
    fsck.add_argument("data_path", metavar="DATA_PATH", help="what the broker has as --data-path")
    fsck.add_argument("--repair", action="store_true", help="mend what can be mended; what is taken away is kept")
    hashing = commands.add_parser(
        "hash-secret",
        help="make the line of a secret for a file of grants",
        description="Asks for a secret, or reads it from stdin, and prints its hash for the file of --auth=static.",
        allow_abbrev=False,
    )
    hashing.add_argument("--generate", action="store_true", help="make a new secret, and print it, too")
    hashing.add_argument("--salt-of", metavar="FILE", help="hash it as the secrets in this file of grants are")
    return parser

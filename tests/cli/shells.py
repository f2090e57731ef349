"""Shells that complete words of `nsqtw`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import attrs

SCRIPTS = Path(sys.executable).parent
SECONDS = 60.0


@attrs.frozen
class Shell:
    """
    A shell: its name, the flags with which it reads no files of the user, and commands that complete `nsqtw top` and
    print the result.
    """

    name: str
    flags: tuple[str, ...]
    complete: str

    def errors_of_script(self, directory: Path) -> str:
        """Return what the shell says about the syntax of its completion script."""
        script = directory / f"script.{self.name}"
        with script.open("wb") as file:
            subprocess.run([SCRIPTS / "nsqtw", "completion", self.name], stdout=file, check=True, timeout=SECONDS)
        checked = subprocess.run([self.name, "-n", str(script)], capture_output=True, text=True, timeout=SECONDS)
        assert bool(checked.stderr) == bool(checked.returncode)
        return checked.stdout + checked.stderr

    def completed(self, home: Path) -> str:
        """Return the completions of `nsqtw top` after the script was loaded."""
        environment = {**os.environ, "PATH": f"{SCRIPTS}:{os.environ['PATH']}", "HOME": str(home)}
        done = subprocess.run(
            [self.name, *self.flags, "-c", self.complete],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.stderr == ""
        return done.stdout


BASH = Shell(
    "bash",
    ("--norc",),
    'eval "$(nsqtw completion bash)"; COMP_WORDS=(nsqtw top); COMP_CWORD=1; _nsqtw_completion nsqtw;'
    ' printf "%s\\n" "${COMPREPLY[@]}"',
)
FISH = Shell("fish", ("--no-config",), "nsqtw completion fish | source; complete -C 'nsqtw top'")
ZSH = Shell(
    "zsh",
    ("-f",),
    'autoload -U compinit; compinit -u -D; eval "$(nsqtw completion zsh)"; print -r -- ${_comps[nsqtw]}',
)

"""A broker that can be made to suffer: started through the launcher, on one data path over all its lives."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.crash.control import Control
from tests.crash.failing_calls import FailingCalls
from tests.crash.file_layers import POWER_FAILED, bring_back
from tests.crash.history import KILL, POWER, STOP, Channel
from tests.process import NsqdProcess

_SHORTEST_WAIT_SECONDS = 1.0
_WAIT_OF_STARTS = 3
LAUNCHER = Path(__file__).with_name("launcher.py")


class Harness(NsqdProcess):
    """
    `nsqd` with faults to come. `life` counts its starts. Its file layer is chosen for each of them: with `volatile`
    files the power can fail.
    """

    def __init__(self, directory: Path, *flags: str, sabotage: str = "") -> None:
        super().__init__(directory, *flags)
        self._sabotage = sabotage
        self._flags = self._command[1:]
        self._control_path = directory / "control"
        self.control = Control(self._control_path)
        self.calls = FailingCalls(directory)
        self.life = 0
        self.volatile = False
        self.start_seconds = 0.0
        """How long the last start took: what shall be deferred over one has to wait for longer."""

    def launch(self, *, volatile: bool = False) -> None:
        """The next life."""
        self.life += 1
        self.volatile = volatile
        layer = "volatile" if volatile else "narrow"
        launcher = [sys.executable, str(LAUNCHER), str(self._control_path), layer, self._sabotage]
        self._command = [*self.calls.preload, *launcher, *self._flags]
        began = time.monotonic()
        self.start()
        self.start_seconds = time.monotonic() - began

    def die(self, how: str) -> None:
        """Of one of these."""
        self.resume()
        if how == KILL:
            self.kill()
        elif how == STOP:
            self.stop()
        else:
            assert how == POWER and self.volatile, how
            status = self.end_with(signal.SIGUSR2)
            assert status == POWER_FAILED, self.said()[-2000:]
            bring_back(self.data_path)

    def is_alive(self, life: int) -> bool:
        """Whether it is in that life, and nobody is ending it."""
        return self.life == life and self.runs

    @property
    def requeues_on_disconnect(self) -> bool:
        """Whether the broker does; the last flag that says so is in force."""
        said = [flag.partition("=")[2] for flag in self._flags if flag.startswith("--requeue-on-disconnect")]
        return bool(said) and said[-1] != "false"

    @property
    def longest_delay_ms(self) -> int:
        """What messages are deferred by: a part of them for longer than a start takes, however slow the machine is."""
        return int(1000 * max(_SHORTEST_WAIT_SECONDS, _WAIT_OF_STARTS * self.start_seconds))

    def halt(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, which does nothing to a broker that runs."""
        os.kill(self.pid, signal.SIGCONT)

    def channel_stats(self) -> dict[Channel, tuple[dict[str, Any], dict[str, Any]]]:
        """What /stats says of each channel and of its topic, all at one moment."""
        return {
            Channel(topic["topic_name"], channel["channel_name"]): (channel, topic)
            for topic in self.stats()
            for channel in topic["channels"]
        }

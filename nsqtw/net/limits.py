"""What the edges of one broker share to hold all their clients together to the limits of the options."""

from __future__ import annotations

from typing import Any

from nsqtw.core.broker import Broker
from nsqtw.net.gate import Gate
from nsqtw.net.open_files import Descriptors
from nsqtw.net.pump import Pump
from nsqtw.net.rounds import Rounds
from nsqtw.net.turned_away import TurnedAway
from nsqtw.net.unfinished import Unfinished


class Limits:
    """
    Connections that may come in (`gate`), how long they may take (`rounds`), what they may keep (`unfinished`), and who
    was over a limit (`turned_away`). Descriptors are counted where `descriptors` are given.
    """

    def __init__(self, broker: Broker, pump: Pump, descriptors: Descriptors | None = None) -> None:
        options = broker.options
        self._broker = broker
        self.descriptors = descriptors
        self.options = options
        self.turned_away = TurnedAway(pump.now)
        self.gate = Gate(options, self.turned_away, descriptors)
        self.rounds = Rounds(pump.reactor, options, pump.now)
        self.unfinished = Unfinished(options.max_unfinished_size)

    def document(self) -> dict[str, Any]:
        """What /stats tells of it."""
        return {
            "connections": self.gate.count,
            "addresses": len(self.gate.by_address),
            "unfinished_bytes": self.unfinished.total,
            "topics": len(self._broker.topics),
            "channels": self._broker.caps.channel_count,
            "over": dict(self.turned_away.counts),
        }

    def close(self) -> None:
        """The broker ends."""
        if self.descriptors is not None:
            self.descriptors.close()

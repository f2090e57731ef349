"""Reactors that tests make besides that of the process."""

from __future__ import annotations

from typing import Any


def close_reactor(reactor: Any) -> None:
    """Close the descriptors of an epoll reactor that has ended. Twisted leaves them open: three for each."""
    for reader in list(reactor._internalReaders):
        reader.connectionLost(None)
    reactor._poller.close()

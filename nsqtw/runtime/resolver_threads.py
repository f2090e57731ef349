"""
Threads that look up host names, for whose end nobody waits.

A lookup is a call of the C library, which cannot be stopped, and takes half a minute when no name server answers.
Twisted makes it in the threads of the reactor, and waits for all of those before the process ends.
"""

from __future__ import annotations

from threading import Thread
from typing import Any

from twisted.internet._resolver import GAIResolver
from twisted.internet.base import ReactorBase
from twisted.python.threadpool import ThreadPool

MOST_LOOKUPS = 32
"""Lookups at a time; as many names may be without an answer before the others have to wait for them."""


def look_up_apart(reactor: Any) -> None:
    """From now on `reactor` looks names up in such threads. A reactor of a test is left alone."""
    if isinstance(reactor, ReactorBase):
        pool = _Pool(0, MOST_LOOKUPS, "names")
        pool.start()
        reactor.installNameResolver(GAIResolver(reactor, lambda: pool))


class _Thread(Thread):
    """Ends with the process."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, daemon=True, **more)


class _Pool(ThreadPool):
    threadFactory = _Thread

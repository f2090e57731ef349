"""
Modules that are imported on first use, so that a start is fast: test suites start a broker hundreds of times.

Twisted imports two large modules that few users need. Importing this module, before Twisted, delays the first one until
it is used: `http.cookiejar`, for a name in `twisted.python.compat`. The second is OpenSSL, which every TCP transport
imports when pyOpenSSL is installed; a broker without a certificate does not need it, see `without_tls`. Together they
are a quarter of the start time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import LazyLoader, find_spec, module_from_spec

_TLS = "OpenSSL"


def load_later(name: str) -> None:
    """Have a module of a package, if it is not there yet, loaded when an attribute of it is first looked at."""
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    package, _, last = name.rpartition(".")
    setattr(import_module(package), last, module)


@contextmanager
def without_tls(is_needed: bool = True) -> Iterator[None]:
    """
    Import Twisted's transports without OpenSSL: those imported in this context have no startTLS. Later imports are as
    usual: clients and servers that use TLS from their start can still be made.
    """
    if not is_needed or _TLS in sys.modules:
        yield
        return
    sys.modules[_TLS] = None  # type: ignore[assignment]  # Python's word for: there is none
    try:
        yield
    finally:
        del sys.modules[_TLS]


load_later("http.cookiejar")

"""Descriptors of backends that tests leave open, as a killed process does."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def collected() -> Iterator[None]:
    """Close them with each module: a library that uses select() cannot have a descriptor above 1023."""
    yield
    gc.collect()

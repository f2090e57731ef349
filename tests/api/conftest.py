"""Fixtures of the HTTP server's tests."""

from tests.http.conftest import heads as heads

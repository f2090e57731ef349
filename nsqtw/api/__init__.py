"""Endpoints of the broker's HTTP API."""

"""The broker as a service."""

"""Pipelines to start from."""

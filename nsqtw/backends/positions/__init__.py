"""Positions of channels: `positions.db`."""

"""The broker's heart: segments, logs, cursors, channels, topics. No IO, no clock, no Twisted."""

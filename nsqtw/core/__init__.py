"""The core of the broker: segments, logs, cursors, channels, topics. No IO, no clock, no Twisted."""

"""nsqtw: a message broker that speaks NSQ and keeps what it acknowledged."""

__version__ = "0.1.0"

NSQ_VERSION = "1.3.0"
"""The version of NSQ whose behaviour this is: clients are told it, and switch features on by it."""

"""nsqtw: a message broker that speaks NSQ and keeps what it acknowledged."""

__version__ = "0.1.0"

"""A broker for tests of applications; contract suites and fakes for authors of plugins, and for our own tests."""

from nsqtw.testing.process import Broker, BrokerNotStarted, broker

__all__ = ["Broker", "BrokerNotStarted", "broker"]

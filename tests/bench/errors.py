"""
What can go wrong in a load test.

BenchError              the run gives no figure; its text is one line for the user
+-- BrokerFailed        the broker did not start, died, refused a command or closed a connection
+-- WrongCount          messages were lost, repeated or miscounted
"""


class BenchError(Exception):
    """
    The run gives no figure.
    """


class BrokerFailed(BenchError):
    """
    The broker did not start, died, refused a command or closed a connection.
    """


class WrongCount(BenchError):
    """
    What was consumed, or what the broker counts, is not what was published.
    """

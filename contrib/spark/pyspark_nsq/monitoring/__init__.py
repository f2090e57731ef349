"""Figures of streaming queries for Prometheus: the lag of the sources, retries, and the rows of the sinks.

    from pyspark_nsq.monitoring import listen

    listen(spark, port=9464)    # before the queries start

The metrics are those of `pyspark_nsq.monitoring.metrics`.
"""

from pyspark_nsq.monitoring.listener import NsqListener, listen

__all__ = ["NsqListener", "listen"]

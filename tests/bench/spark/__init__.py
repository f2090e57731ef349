"""``python -m tests.bench.spark``: what the connector for Spark does a second, and what it costs."""

"""Writing: rows of Spark become messages, which are published to nsqd."""

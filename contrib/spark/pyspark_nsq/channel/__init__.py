"""Reading a channel: messages of nsqd become rows of Spark, by way of a spool."""

"""Reading of a channel: messages of nsqd become rows of Spark, through a spool."""

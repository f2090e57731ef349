"""An example for ``nsqtw-spark etl``: clicks in windows of ten minutes, some of them late, some malformed."""

"""The console script `nsqtw-spark` where the connector for Spark may not be installed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the jobs of the connector, or name the extra that installs it."""
    try:
        from pyspark_nsq.jobs.main import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyspark_nsq", "pyarrow"):
            raise
        sys.exit("nsqtw-spark: PySpark is not installed; run: pip install 'nsqtw[spark]'")
    run()

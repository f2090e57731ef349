"""``python -m pyspark_nsq.jobs``, and the program for ``spark-submit``: the same as ``nsqtw-spark``."""

import sys
from pathlib import Path

if not __package__:
    # As a script, its folder precedes the standard library, which has modules of the same names as some jobs.
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]

from pyspark_nsq.jobs.main import main

if __name__ == "__main__":
    main()

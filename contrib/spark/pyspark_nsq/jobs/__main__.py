"""``python -m pyspark_nsq.jobs``, and the program for ``spark-submit``: the same as ``nsqtw-spark``."""

from pyspark_nsq.jobs.main import main

if __name__ == "__main__":
    main()

"""``python -m tests.spark.jobs.replay_job WORDS``: ``nsqtw-spark`` with small sections, to be killed between two."""

import sys

from pyspark_nsq.jobs.main import run
from pyspark_nsq.jobs.replay import publish

SECTION = 300

if __name__ == "__main__":
    publish.SECTION_MESSAGES = SECTION
    sys.exit(run(sys.argv[1:]))

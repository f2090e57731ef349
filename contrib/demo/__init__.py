"""The whole story, shown: Spark reads real records, the broker carries them, readers of every kind get them all.

Run ``python -m contrib.demo`` in the project's root. In the middle the broker is killed with SIGKILL and started again.
Afterwards the commands of ``nsqtw-spark`` archive the topic, run SQL over it, and replay the archive. At the end a
table has what went in, what came out, and what was lost: nothing.

    records.py    which records there are: the machine's packages, the project's history, or a file
    job.py        what the Spark job is told to do
    pipeline.py   the Spark job, a process of its own: reads, transforms, writes with format("nsq")
    transform.py  what it makes of the records
    feed.py       paces the job, so that there is a middle to kill the broker in
    broker.py     the broker as a process: start, kill, start again, stop
    consumer.py   our consumer, a process of its own
    stranger.py   the consumer nobody here wrote: gnsq, a process of its own
    ledger.py     what a consumer notes down about each delivery, and what the show reads of it
    children.py   processes with a log file each, and what to say when one dies
    lake.py       the archive, the SQL and the replay
    summary.toml  the SQL, for nsqtw-spark etl
    picture.py    the picture of the pipeline
    show.py       the course of events
    report.py     the table
"""

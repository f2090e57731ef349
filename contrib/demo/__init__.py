"""The demo: Spark publishes real records to a broker that is killed, and readers of all kinds get every record.

Run ``python -m contrib.demo`` in the project's root. In the middle the broker is killed with SIGKILL and started again.
Afterwards the commands of ``nsqtw-spark`` archive the topic, run SQL over it, and replay the archive. At the end a
table has what went in, what came out, and what was lost: nothing.

    records.py    the records: the machine's packages, the project's history, or a file
    job.py        the interface to the Spark job
    pipeline.py   the Spark job, a process of its own: reads, transforms, writes with format("nsq")
    transform.py  its DataFrames of the records
    feed.py       delays the job, so that the broker can be killed half-way
    broker.py     the broker as a process: start, kill, start again, stop
    consumer.py   our consumer, a process of its own
    stranger.py   the consumer of another project: gnsq, a process of its own
    ledger.py     the deliveries that a consumer records
    children.py   processes with a log file each, and the report of one that fails
    lake.py       the archive, the SQL and the replay
    summary.toml  the SQL, for nsqtw-spark etl
    picture.py    the picture of the pipeline
    show.py       the steps of the demo
    report.py     the table
"""

"""
`nsqtw fsck`: a check of the data path of a stopped broker, and its repair.

    positions   positions.db, and what it says of the logs
    data_path   all of it
    repair      the same with less damage
    command     the words, the lines and the exit code

The truth is what a broker makes of the data path at its next start and at every read after that: the records are
walked by the broker's own scan, positions.db is loaded by the broker's own code. A repair takes away only what a
broker would not deliver, and what it takes away is kept.

Checking writes nothing into the data path.
"""

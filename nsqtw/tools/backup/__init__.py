"""
`nsqtw backup` and `nsqtw restore`: a copy of a data path, made while its broker runs, and back.

    backup     hold ─▶ positions.db ─▶ names, manifest ─▶ messages ─▶ torn ends are cut ─▶ contents.json ─▶ rename
    restore    contents.json ─▶ checksums ─▶ copy ─▶ rename ─▶ fsck

Theory of operation. What a broker has stored is right when its messages are at least as new as its positions: that is
what a crash leaves, and what a start repairs. So positions.db is copied first, as one consistent snapshot (SQLite's
online backup), and the messages after it. Messages that are published meanwhile may be in the copy or not; those that
were acknowledged before the backup began are in it. A hold (`core.file_hold`) has the broker delete nothing meanwhile,
so what is finished during the copy is in it, too, and comes again. Without a broker the lock on the data path is taken
instead.

A backup is made under another name and renamed when it is complete and on stable storage. `contents.json` has the size
and the checksum of each file.
"""

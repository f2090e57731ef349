"""Verbs about the files of a broker."""

from __future__ import annotations

from nsqtw.cli.verb import (
    FILES,
    Verb,
    argument,
    flag,
    option,
    verb,
)

_DATA_PATH = "What the broker has as --data-path."

VERBS: tuple[Verb, ...] = (
    verb(
        "backup",
        "copy a data path, while its broker runs",
        "data_verbs:backup",
        argument("directory", _DATA_PATH, metavar="DATA_PATH"),
        argument("target", "A directory that is not there yet, or empty."),
        option(
            "--nsqd-http-address",
            "The broker that uses the data path, as host:port or https://host:port; none if none runs.",
            default="",
            metavar="ADDRESS",
        ),
        option("--secret-file", "File with a secret that may administer it.", default="", metavar="FILE"),
        option("--root-ca-file", "Authorities for its certificate (PEM).", default="", metavar="FILE"),
        flag("--link must_link", "Link finished log files where the file system can, instead of copying them."),
        description="Copy everything that a broker has stored: what was acknowledged before it began is in the copy."
        " The broker goes on meanwhile, and keeps what it would delete.",
        exit_codes="0: the backup is complete; 1: there is none, and stderr says why; 2: wrong words; 3: it is"
        " complete, and has damage that the data path has.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
        examples=(("Of a broker that runs", "backup /var/lib/nsqd /backup/monday --nsqd-http-address 127.0.0.1:4151"),),
    ),
    verb(
        "restore",
        "check a backup, and make it a data path",
        "data_verbs:restore",
        argument("backup", "What nsqtw backup has made."),
        argument(
            "directory",
            "A directory that is not there yet, or empty; not with --check.",
            metavar="[DATA_PATH]",
            required=False,
        ),
        flag("--replace must_replace", "Rename what is at DATA_PATH to DATA_PATH.replaced.1."),
        flag("--check must_only_check", "Only check the backup."),
        description="Read all of a backup and refuse it when anything in it has changed. Then copy it to DATA_PATH and"
        " check it as fsck does.",
        exit_codes="0: it is there; 1: it is not, and stderr says why; 2: wrong words; 3: it is there, and has damage"
        " from before the backup.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
    ),
    verb(
        "fsck",
        "check a data path, and repair it",
        "data_verbs:fsck",
        argument("directory", _DATA_PATH, metavar="DATA_PATH"),
        flag("--repair must_repair", "Repair what can be repaired; what is removed is kept."),
        description="Read everything in a data path and say what is wrong: a line for each finding, then a summary.",
        exit_codes="0: nothing is wrong; 1: something is, or a broker uses the data path; 2: wrong words, or no data"
        " path; 3: something was wrong, and all of it is repaired.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
    ),
    verb(
        "migrate-backend",
        "move the messages of a data path to another storage backend",
        "data_verbs:migrate_backend",
        argument("source", "The backend that has the messages: disk, sqlite, ...", metavar="FROM"),
        argument("target", "The backend that is to have them.", metavar="TO"),
        option("--data-path", _DATA_PATH, metavar="PATH", default=".", show_default=True),
        description="Move all messages of a data path from one storage backend to another, while no broker runs."
        " Channels stay where they are. A run that was interrupted is finished by the same command. FROM and TO are as"
        " for --backend.",
        exit_codes="0: all messages are in TO; 1: they are not, and stderr says why; 2: wrong words.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
    ),
    verb(
        "hash-secret",
        "hash a secret for a grants file",
        "data_verbs:hash_secret",
        flag("--generate", "Make a new secret, and print it, too."),
        option("--salt-of", "Hash it as the secrets in this file of grants are.", metavar="FILE"),
        description="Ask for a secret, or read it from stdin, and print its hash for the file of --auth=static.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
    ),
)

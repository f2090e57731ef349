"""
The declarations of all verbs, in the order of `nsqtw --help`, in a module for each section. A new verb is an element of
one of them, and its function.

Help, completion and the man page are made of them without what the verbs need.
"""

from __future__ import annotations

from nsqtw.cli.verb import Verb
from nsqtw.cli.verbs import cluster, files, messages, replica, settings, topics

VERBS: tuple[Verb, ...] = (
    *messages.VERBS,
    *topics.VERBS,
    *cluster.VERBS,
    *files.VERBS,
    *replica.VERBS,
    *settings.VERBS,
)

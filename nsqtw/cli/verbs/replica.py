"""Verbs about the replica store of a broker."""

from __future__ import annotations

from typing import Any

import click

from nsqtw.cli.verb import FILES, Verb, argument, flag, option, verb


def _store() -> click.Argument:
    return argument("store", "What the brokers have as --replicate: NAME:ARGUMENT, as in postgres:FILE.")


_LOCAL: dict[str, Any] = {"section": FILES, "uses_cluster": False}

VERBS: tuple[Verb, ...] = (
    verb(
        "replicate init",
        "create the data set of a replica store",
        "replicate_verbs:init",
        _store(),
        option(
            "--data-path",
            "The data path that is copied to it, and becomes its first copy; no broker uses it.",
            metavar="PATH",
            default=".",
            show_default=True,
        ),
        flag("--replace must_replace", "Replace a data set of this name."),
        description="Create the tables of a replica store if there are none, and a data set in it, with everything that"
        " a data path has. Brokers are started with --replicate after it; the others begin with an empty data path.",
        has_output=False,
        examples=(("For a broker that ran without a copy", "replicate init postgres:/etc/nsqtw/replica.toml"),),
        **_LOCAL,
    ),
    verb(
        "replicate status",
        "show the owner and the standbys of a data set",
        "replicate_verbs:status",
        _store(),
        description="Show the brokers of a data set. BEHIND is in transactions; SECONDS is what is left of the owner's"
        " lease, and the time since a standby last reported.",
        **_LOCAL,
    ),
    verb(
        "replicate promote",
        "have a standby take over",
        "replicate_verbs:promote",
        _store(),
        flag("--force must_force", "Do not ask the owner: it cannot write any more from now on."),
        option(
            "--timeout",
            "Seconds to wait for a new owner.",
            type=click.FloatRange(min=0),
            default=60.0,
            show_default=True,
            metavar="SECONDS",
        ),
        description="Ask the owner of a data set to stop in order and release it, and wait until a standby has taken"
        " over.",
        has_output=False,
        **_LOCAL,
    ),
    verb(
        "replicate forget",
        "remove a data set from its replica store",
        "replicate_verbs:forget",
        _store(),
        flag("--force must_force", "Even if a broker owns it."),
        has_output=False,
        asks=True,
        **_LOCAL,
    ),
    verb(
        "replicate detach",
        "make the copy in a data path a data path of its own",
        "replicate_verbs:detach",
        option("--data-path", "The data path of the last owner.", metavar="PATH", default=".", show_default=True),
        description="A broker starts with the data path without --replicate from then on. The data set stays as it is.",
        has_output=False,
        **_LOCAL,
    ),
)

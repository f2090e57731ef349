"""Verbs about the nodes of a cluster."""

from __future__ import annotations

import click

from nsqtw.cli import completion
from nsqtw.cli.contexts import LOCAL_NSQD
from nsqtw.cli.verb import (
    CHECKS,
    SORTS,
    Verb,
    argument,
    flag,
    option,
    port,
    verb,
)

VERBS: tuple[Verb, ...] = (
    verb(
        "up",
        "run nsqd, nsqlookupd and nsqadmin on this machine",
        "up:up",
        option("--data-path", "Directory for the messages.", type=click.Path(), default="nsq-data", show_default=True),
        option(
            "--address",
            "Address to listen on; 0.0.0.0 for all of the machine.",
            default="127.0.0.1",
            show_default=True,
            metavar="HOST",
        ),
        option(
            "--port",
            "TCP port of nsqd; the other ports keep NSQ's distance to it. 0: any free ports.",
            type=click.IntRange(0, 65000),
            default=4150,
            show_default=True,
        ),
        port("--nsqd-tcp-port nsqd_tcp", "TCP port of nsqd"),
        port("--nsqd-http-port nsqd_http", "HTTP port of nsqd"),
        port("--lookupd-tcp-port lookupd_tcp", "TCP port of nsqlookupd"),
        port("--lookupd-http-port lookupd_http", "HTTP port of nsqlookupd"),
        option(
            "--nsqd-flag",
            "Flag for nsqd, such as --nsqd-flag=--durability=fsync; may be repeated.",
            multiple=True,
            metavar="FLAG",
        ),
        flag("--without-lookupd", "Start no nsqlookupd."),
        flag("--without-admin", "Start no nsqadmin."),
        flag("-v --verbose", "Print the logs of all, each line with the name of its daemon."),
        description="Run a cluster of one node until Ctrl-C. A line for each daemon says where it listens. When one of"
        " them ends by itself, its last lines are printed and the others are ended.",
        uses_cluster=False,
        examples=(("On other ports", "up --port 5150 --data-path /tmp/nsq"),),
    ),
    verb(
        "stat",
        "show depths and rates, live on a terminal",
        "stat:stat",
        argument("topic", "Only this topic.", required=False, shell_complete=completion.topics),
        argument("channel", "Only this channel.", required=False, shell_complete=completion.channels),
        option(
            "--interval",
            "Seconds between two looks.",
            type=click.FloatRange(0.1),
            default=1.0,
            show_default=True,
            metavar="SECONDS",
        ),
        option("-n", "End after so many looks. Rates need two.", type=click.IntRange(1), metavar="COUNT"),
        option(
            "--sort",
            "Order of the rows.",
            type=click.Choice(tuple(SORTS)),
            default="name",
            show_default=True,
        ),
        description="Show depth, in flight, deferred and rates of all channels. On a terminal the table is live until"
        " Ctrl-C; elsewhere, or with -n 1, it is printed once.",
        examples=(("The deepest channels first", "stat --sort depth"),),
    ),
    verb(
        "nodes",
        "list the nsqds of the cluster",
        "nodes:list_nodes",
        description="List the nsqds of the cluster: those that the nsqlookupds name, or those that are given. HEALTH is"
        " OK, draining, or the error of the node or of its replica store. ROLE is owner or standby; it is shown when a"
        " node has a replica store.",
    ),
    verb(
        "drain",
        "have a node deliver what it has, then stop",
        "nodes:drain",
        argument(
            "node",
            "HTTP address of the node: the one that 'nsqtw nodes' shows, or one that was given.",
            shell_complete=completion.nodes,
        ),
        option(
            "--timeout",
            "Time after which it stops anyway, such as 5m; 0 for any. Unless given, the node's own.",
            metavar="DURATION",
        ),
        flag("--no-wait", "Return when the drain has begun."),
        description="Have a node refuse publishes, leave nsqlookupd, deliver what it has, and stop. Messages that no"
        " consumer takes before the timeout stay in its data path, and are exit code 1.",
        asks=True,
    ),
    verb(
        "reload",
        "have nodes read options and files again",
        "nodes:reload",
        argument(
            "node", "HTTP address of a node; all nodes unless given.", required=False, shell_complete=completion.nodes
        ),
        description="Have nodes read their config files, and the certificates, secrets and grants that these name,"
        " again. A node whose files have a mistake changes nothing. Which options need a restart is shown.",
    ),
    verb(
        "doctor",
        "check machine, files and nodes, and say what to do",
        "doctor.command:doctor",
        option(
            "--data-path", "Data path of a broker on this machine: check its disk and file system.", type=click.Path()
        ),
        option("--replicate", "Replica store of a broker: check it, too.", default="", metavar="NAME:ARGUMENT"),
        description="Check the limits of this machine, disk and file system of a data path, the config file, secrets"
        " and TLS files, and the nodes: whether they can be reached and are ready, their addresses, clocks,"
        " certificates and versions. Each problem says what to do. The exit code is 1 when one of them is an error.",
        examples=(("A machine with a broker", "doctor --data-path /var/lib/nsqd"),),
    ),
    verb(
        "health",
        "ask one daemon whether it works",
        "health:health",
        argument(
            "address",
            "HTTP address of nsqd, nsqlookupd or nsqadmin; unless given, $NSQTW_HEALTH_ADDRESS or 127.0.0.1:4151.",
            default=LOCAL_NSQD,
            envvar="NSQTW_HEALTH_ADDRESS",
        ),
        option(
            "--check",
            "What to ask for; a daemon without it is asked for /ping.",
            type=click.Choice(tuple(CHECKS)),
            default="ready",
            show_default=True,
        ),
        option(
            "--timeout",
            "Time for the answer.",
            type=click.FloatRange(0.1),
            default=3.0,
            show_default=True,
            metavar="SECONDS",
        ),
        option("--root-ca-file", "Authorities for its certificate (PEM).", default="", metavar="FILE"),
        description="Ask one daemon whether it works. The exit code is 0 when it does, 1 when it says no, and 4 when"
        " it cannot be reached. For the health check of a container.",
        uses_cluster=False,
        examples=(("In a Containerfile", "health 127.0.0.1:4151 --check live"),),
    ),
)

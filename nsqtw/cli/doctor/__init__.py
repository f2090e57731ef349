"""
`nsqtw doctor`: checks of this machine, of the files of a context, and of the nodes of a cluster.

    finding   the result of a check: how bad it is, and what to do
    machine   limits, disk and file system of this machine
    files     the config file, secrets and TLS files
    cluster   nodes: reachable, healthy, of one version, with the right clock and the right addresses
    command   all checks, and the table of their findings
"""

"""
Protocol V3, a plugin like those of others: it uses the public interfaces of `nsqtw.interfaces` and no module of the
core.

    factory       the plugin
    session       one connection: commands, confirms, heartbeats
    subscription  one subscription of it
    codec         frames to fields and back

Specification: docs/protocol-v3.md.
"""

"""
Protocol V3, a plugin like those of others: it uses the public interfaces of `nsqtw.interfaces` and no module of the
core.

    factory        the plugin
    session        one connection: commands, confirms, heartbeats
    handshake      the fields of HELLO, the document of WELCOME
    publishes      the answers of PUBLISH frames
    subscription   one subscription
    frame_timeout  the time limit of a frame that has come in part
    codec          frames to fields and back
    single_fins    FINs of one message each, many at once

Specification: docs/protocol-v3.md.
"""

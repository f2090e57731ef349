"""Encoding of message headers, for protocols and clients (drawn in `nsqtw.core.headers` and docs/protocol-v3.md)."""

from nsqtw.core.headers import decode_headers, encode_headers

__all__ = ["decode_headers", "encode_headers"]

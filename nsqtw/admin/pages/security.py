"""Header fields of every answer with a page or a static file."""

from __future__ import annotations

from nsqtw.admin.server import WebRequest

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_FIELDS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)


def protect(request: WebRequest) -> None:
    """Set the fields: no script, style or frame of another origin, and none in the page itself."""
    for name, value in _FIELDS:
        request.setHeader(name, value)

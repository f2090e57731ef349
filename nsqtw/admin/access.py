"""
Access control of nsqadmin: the user of a request, and the refusal of requests that other web sites make.

    open              no option: every client may do everything, as in the original
    header            --admin-user, --read-user, ...: a proxy names the user in --acl-http-header
    authorizer        --auth: a session cookie after a login with name and secret, or HTTP's Basic or Bearer
                      authentication, whose secret an authorizer checks (nsqtw.interfaces.IAuthorizer)

A cookie is sent by a browser whatever page makes the request. So a form of a page has a token that only pages of
nsqadmin know, and every request that changes something is refused when its headers name another site.
"""

from __future__ import annotations

import hmac
import ipaddress
from base64 import b64decode
from binascii import Error as Base64Error
from secrets import token_bytes, token_hex

import attrs
from twisted.internet.defer import Deferred

from nsqtw.admin.server import MAX_BODY_BYTES, MAX_SMALL_BODY_BYTES, WebRequest
from nsqtw.admin.sessions import Sessions
from nsqtw.admin.viewer import Role, Viewer, viewer_with
from nsqtw.errors import AccessDenied, AuthError, AuthRefused
from nsqtw.http.browsers import CROSS_ORIGIN, FIELDS, is_of_another_site
from nsqtw.options.addresses import host_of
from nsqtw.options.admin import AdminOptions, Network, network_of
from nsqtw.rights import MAX_SECRET_BYTES, Authorizations, Credentials, Rights

COOKIE = "nsqadmin_session"
FORBIDDEN = "FORBIDDEN"
_SALT_BYTES = 16
_OPEN = Viewer("", Role.ADMIN, True)


@attrs.define
class _Known:
    """The user of a request, as a component of the request."""

    viewer: Viewer


class Access:
    """Decides about users. `authorizations` ask the authorizer of --auth; None without it."""

    def __init__(self, options: AdminOptions, authorizations: Authorizations | None) -> None:
        self._options = options
        self._authorizations = authorizations
        self._sessions = Sessions()
        self._key = token_bytes(32)

    @property
    def has_login(self) -> bool:
        """Whether users log in at nsqadmin itself."""
        return self._authorizations is not None

    @property
    def has_users(self) -> bool:
        """Whether it depends on the user what a request may do."""
        return self.has_login or self._options.has_named_users

    # -- users

    async def authenticate(self, request: WebRequest) -> Viewer | None:
        """Return the user of a request; None for one that may see nothing. AuthError when it cannot be determined."""
        viewer = self.known_viewer(request)
        if viewer is not None or self._authorizations is None:
            return viewer
        name, secret = _credentials(request)
        return await self._check(name, secret, request) if secret else None

    def known_viewer(self, request: WebRequest) -> Viewer | None:
        """Return the user of a request without a question to an authorizer; None for none, or another one."""
        if self._authorizations is None:
            return self._named_by_proxy(request)
        token = _cookie(request)
        return self._sessions.find(token, self._authorizations.now()) if token else None

    def body_limit(self, request: WebRequest) -> int:
        """Return the bytes that the body of a request may have: only who may publish sends much."""
        viewer = self.known_viewer(request)
        is_publisher = viewer is not None and (viewer.role >= Role.PUBLISH or viewer.rights is not None)
        return MAX_BODY_BYTES if is_publisher else MAX_SMALL_BODY_BYTES

    def set_viewer(self, request: WebRequest, viewer: Viewer) -> None:
        """Record the user of a request."""
        request.setComponent(_Known, _Known(viewer))

    def viewer(self, request: WebRequest) -> Viewer:
        """Return the recorded user of a request."""
        known: _Known = request.getComponent(_Known)
        return known.viewer

    def reported_user(self, request: WebRequest) -> str:
        """
        Return the user of a request as other programs are told. Where there are no users, it is that of HTTP's Basic
        authentication, as in the original; any client can choose it.
        """
        name = self.viewer(request).name
        return name if self.has_users else _basic(request.getHeader("Authorization") or "")[0] or name

    async def log_in(self, request: WebRequest, name: str, secret: str) -> Viewer | None:
        """Start a session, and set its cookie; None for a wrong name or secret. AuthError."""
        assert self._authorizations is not None, "there is a login"
        viewer = await self._check(name, secret, request) if secret else None
        if viewer is not None:
            now, timeout = self._authorizations.now(), self._options.session_timeout
            self._set_cookie(request, self._sessions.start(viewer, now, timeout))
        return viewer

    def log_out(self, request: WebRequest) -> None:
        """End the session of a request, and remove its cookie."""
        token = _cookie(request)
        if token:
            self._sessions.end(token)
        self._set_cookie(request, "")

    def reconsider(self) -> None:
        """Grants may have changed: end all sessions."""
        self._sessions.end_all()

    def client_ip(self, request: WebRequest) -> str:
        """
        Return the address that a request comes from: of the peer, or when that is a proxy of --acl-proxy-cidr, what
        the proxy says in X-Forwarded-For, with a port or without. Empty for a unix socket, and where the proxy does not
        know it: what stands before such a word is of the client's choice.
        """
        peer = peer_ip(request)
        proxies = network_of("acl-proxy-cidr", self._options.acl_proxy_cidr)
        if proxies is None or not is_in(proxies, peer):
            return peer
        lists = request.requestHeaders.getRawHeaders("X-Forwarded-For", [])
        for entry in reversed([entry.strip() for entry in ",".join(lists).split(",") if entry.strip()]):
            address = host_of(entry).removeprefix("::ffff:")
            if not is_in(proxies, address):
                return address if is_ip(address) else ""
        return peer

    # -- requests of other sites

    def csrf_token(self, viewer: Viewer) -> str:
        """
        Return a token for the forms of a user's page. Each has a salt: the size of a compressed page that also repeats
        what was asked tells nothing of it.
        """
        salt = token_hex(_SALT_BYTES)
        return salt + self._csrf_digest(viewer, salt.encode())

    def check_csrf(self, request: WebRequest, viewer: Viewer, token: str) -> None:
        """Raise AccessDenied for a form that no page of nsqadmin has made for this user."""
        self.check_origin(request)
        salt = token[: 2 * _SALT_BYTES]
        expected = salt + self._csrf_digest(viewer, salt.encode("utf-8", "replace"))
        if not hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode("utf-8", "replace")):
            raise AccessDenied(CROSS_ORIGIN, "the page is out of date: load it again")

    def check_origin(self, request: WebRequest) -> None:
        """Raise AccessDenied for a change, or a login, that a browser makes for a page of another site."""
        if is_of_another_site(browser_fields(request), is_change=True):
            raise AccessDenied(CROSS_ORIGIN, "the request was made by a page of another site")

    def check(self, viewer: Viewer, role: Role, topic: str = "", channel: str = "") -> None:
        """Raise AccessDenied when the user may not do what needs `role`."""
        if not viewer.may(role, topic, channel):
            raise AccessDenied(FORBIDDEN, f"this needs the role {role.name.lower()}")

    # -- inside

    def _csrf_digest(self, viewer: Viewer, salt: bytes) -> str:
        subject = viewer.csrf_subject.encode("utf-8", "replace")
        return hmac.digest(self._key, salt + subject, "sha256").hex()

    def _named_by_proxy(self, request: WebRequest) -> Viewer | None:
        options = self._options
        name = ""
        proxies = network_of("acl-proxy-cidr", options.acl_proxy_cidr)
        if proxies is None or is_in(proxies, peer_ip(request)):
            name = request.getHeader(options.acl_http_header) or ""
        if not self.has_users:
            return attrs.evolve(_OPEN, name=name, csrf_subject=name)
        may_see_bodies = bool(name) and (name in options.admin_user or name in options.body_user)
        if name in options.admin_user:
            role = Role.ADMIN
        elif name in options.publish_user:
            role = Role.PUBLISH
        elif options.read_user and name not in (*options.read_user, *options.body_user):
            return None
        else:
            role = Role.READ
        return Viewer(name, role, may_see_bodies, csrf_subject=name)

    async def _check(self, name: str, secret: str, request: WebRequest) -> Viewer | None:
        """Return the user with a secret; None when the secret, or the name it is used with, is wrong."""
        assert self._authorizations is not None, "there is an authorizer"
        raw = secret.encode("utf-8", "surrogateescape")
        if len(raw) > MAX_SECRET_BYTES:
            return None
        outcome: Deferred[Rights | AuthError] = Deferred(lambda _: forget())
        credentials = Credentials(raw, self.client_ip(request), request.isSecure())
        forget = self._authorizations.ask(credentials, outcome.callback)
        rights = await outcome
        if isinstance(rights, AuthRefused):
            return None
        if isinstance(rights, AuthError):
            raise rights
        viewer = viewer_with(rights)
        if viewer is None or (name and viewer.name and name != viewer.name):
            return None
        return viewer if viewer.name else attrs.evolve(viewer, name=name, csrf_subject=name)

    def _set_cookie(self, request: WebRequest, token: str) -> None:
        request.addCookie(
            COOKIE,
            token,
            path=self._options.base_path,
            max_age="0" if not token else str(int(self._options.session_timeout)),
            secure=is_https(request),
            httpOnly=True,
            sameSite="lax",
        )


def browser_fields(request: WebRequest) -> dict[bytes, bytes]:
    """Return the header fields of a request that the rules for browsers are about."""
    values = {name: request.requestHeaders.getRawHeaders(name) for name in FIELDS}
    return {name: value[-1] for name, value in values.items() if value}


def peer_ip(request: WebRequest) -> str:
    """Return the address of the peer of a request; empty for a unix socket."""
    address: str = request.getClientAddress().host if hasattr(request.getClientAddress(), "host") else ""
    return address.removeprefix("::ffff:")


def is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return True


def is_in(network: Network, address: str) -> bool:
    return is_ip(address) and ipaddress.ip_address(address.partition("%")[0]) in network


def is_https(request: WebRequest) -> bool:
    """Return whether the browser speaks HTTPS, with nsqadmin or with a proxy in front of it."""
    forwarded = request.getHeader("X-Forwarded-Proto") or request.getHeader("X-Scheme") or ""
    return request.isSecure() or forwarded.lower() == "https"


def _credentials(request: WebRequest) -> tuple[str, str]:
    """Return name and secret of the Authorization field, "" for what there is not."""
    field = request.getHeader("Authorization") or ""
    scheme, _, rest = field.partition(" ")
    return ("", rest.strip()) if scheme.lower() == "bearer" else _basic(field)


def _basic(field: str) -> tuple[str, str]:
    scheme, _, rest = field.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, colon, secret = b64decode(rest.strip(), validate=True).decode("utf-8").partition(":")
    except (Base64Error, ValueError):
        return "", ""
    return (name, secret) if colon else ("", "")


def _cookie(request: WebRequest) -> str:
    value: bytes | None = request.getCookie(COOKIE.encode())
    return (value or b"").decode("ascii", "replace")

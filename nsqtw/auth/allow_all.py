"""The authorizer `allow_all`, which accepts any secret: for trials, and for clients that require AUTH."""

from __future__ import annotations

from zope.interface import implementer, provider

from nsqtw.auth.grants import Grant, Grants
from nsqtw.errors import AuthError
from nsqtw.interfaces import IAuthorizer, IAuthorizerFactory, OperatorLog
from nsqtw.options.broker import Options
from nsqtw.rights import PERMISSIONS, Answer, Credentials

_EVERYTHING = Grants([Grant(topic=".*", channels=(".*",), permissions=PERMISSIONS)])


@implementer(IAuthorizer)
class AllowAll:
    """Grants everything to a client with any secret."""

    def authorize(self, credentials: Credentials, answer: Answer) -> Grants:
        """IAuthorizer API."""
        return _EVERYTHING

    def reload(self) -> bool:
        """IAuthorizer API. There is nothing to read."""
        return False

    def close(self) -> None:
        """IAuthorizer API."""


@provider(IAuthorizerFactory)
class AllowAllFactory:
    """Makes it."""

    name = "allow_all"
    summary = "any secret may do everything"
    argument_format = ""

    @staticmethod
    def open(argument: str, options: Options, log: OperatorLog) -> AllowAll:
        """IAuthorizerFactory API."""
        if argument:
            raise AuthError("--auth=allow_all takes no argument")
        return AllowAll()

"""Users of nsqadmin and their permissions."""

from __future__ import annotations

from enum import IntEnum

import attrs

from nsqtw.rights import ADMIN, PUBLISH, SUBSCRIBE, Rights


class Role(IntEnum):
    """The rights of a user. A higher role includes the lower ones."""

    READ = 1
    PUBLISH = 2
    ADMIN = 3


_PERMISSIONS = {Role.PUBLISH: (PUBLISH, ADMIN), Role.ADMIN: (ADMIN,)}


@attrs.frozen
class Viewer:
    """
    A user. `role` and `may_see_bodies` are for the whole cluster; with `rights`, an authorizer's, the user may have a
    higher role for some topics. `name` is empty for a user that is not known. `csrf_subject` is what the user's CSRF
    tokens belong to.
    """

    name: str
    role: Role
    may_see_bodies: bool
    rights: Rights | None = attrs.field(default=None, repr=False, eq=id)
    csrf_subject: str = attrs.field(default="", repr=False)

    def may(self, role: Role, topic: str = "", channel: str = "") -> bool:
        """Return whether the user may do what needs `role` with a channel, a topic, or the whole cluster."""
        if self.role >= role:
            return True
        if self.rights is None:
            return False
        return any(self.rights.allows(permission, topic, channel) for permission in _PERMISSIONS[role])

    def may_see_bodies_of(self, topic: str, channel: str = "") -> bool:
        """Return whether the user may look at the bodies of messages of a topic or channel."""
        return self.may_see_bodies or (self.rights is not None and self.rights.allows(SUBSCRIBE, topic, channel))


def viewer_with(rights: Rights) -> Viewer | None:
    """Return the user that an authorizer's rights belong to; None when there is no permission at all."""
    if not rights.count:
        return None
    role = Role.READ
    if rights.allows(ADMIN, "", ""):
        role = Role.ADMIN
    elif rights.allows(PUBLISH, "", ""):
        role = Role.PUBLISH
    return Viewer(rights.identity, role, rights.allows(SUBSCRIBE, "", ""), rights, rights.identity)

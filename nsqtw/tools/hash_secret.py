"""`nsqtw hash-secret`: the line for a file of grants."""

from __future__ import annotations

import sys
from collections import Counter
from getpass import getpass
from secrets import token_urlsafe

from nsqtw.auth.grants_file import read_grants
from nsqtw.auth.secret_hash import Recipe
from nsqtw.errors import AuthError
from nsqtw.printing import complain, write_line
from nsqtw.rights import MAX_SECRET_BYTES

_RANDOM_BYTES = 32


def run(salt_of: str | None, generate: bool) -> int:
    """
    Print the hash of a secret: a new one, printed too, or one that is typed or comes on stdin, never an argument, which
    other users of the machine could see. `salt_of` names a file of grants whose salt is used. The exit code.
    """
    try:
        recipe = Recipe.fresh() if salt_of is None else _recipe_of(salt_of)
        secret = token_urlsafe(_RANDOM_BYTES).encode() if generate else _asked_for()
    except AuthError as error:
        complain(f"nsqtw hash-secret: {error}")
        return 1
    if generate:
        write_line(f"# the secret: {secret.decode()}")
    write_line(f'secret = "{recipe.line(secret)}"')
    return 0


def _recipe_of(path: str) -> Recipe:
    """The one that most secrets in the file have."""
    counts = Counter(line.recipe for line in read_grants(path))
    return counts.most_common(1)[0][0] if counts else Recipe.fresh()


def _asked_for() -> bytes:
    """The secret: all of stdin but for one line end, or what is typed twice."""
    if sys.stdin.isatty():
        secret = getpass("secret: ").encode("utf-8", "surrogateescape")
        if getpass("again: ").encode("utf-8", "surrogateescape") != secret:
            raise AuthError("these are not the same")
    else:
        secret = sys.stdin.buffer.read(MAX_SECRET_BYTES + 2).removesuffix(b"\n").removesuffix(b"\r")
    if not 0 < len(secret) <= MAX_SECRET_BYTES:
        raise AuthError(f"a secret has 1 to {MAX_SECRET_BYTES} bytes")
    return secret

"""
Hashes of secrets, as a file of grants contains them.

    scrypt:16384:8:1:<salt>:<hash>           cost, block size, parallelism
    pbkdf2-sha256:600000:<salt>:<hash>       iterations

Salt and hash are base64. Computing one takes some 50 ms on purpose, also for an attacker that tries secrets. Secrets
that share a salt are checked with one such hash; `Recipe` is everything except the hash.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from secrets import token_bytes

import attrs

from nsqtw.errors import AuthError

SCRYPT, PBKDF2 = "scrypt", "pbkdf2-sha256"
_DEFAULT_NUMBERS = (16384, 8, 1)
_SALT_BYTES = 16
_HASH_BYTES = range(16, 65)
_MAX_MEMORY = 64 * 1024 * 1024
_MAX_PARALLEL = 16
_MAX_ITERATIONS = 2_000_000
_SPARE_BYTES = 1024 * 1024


@attrs.frozen
class Recipe:
    """The parameters of a hash."""

    method: str
    numbers: tuple[int, ...]
    salt: bytes

    @classmethod
    def fresh(cls) -> Recipe:
        """Return our default recipe, with a random salt."""
        return cls(SCRYPT, _DEFAULT_NUMBERS, token_bytes(_SALT_BYTES))

    def hash(self, secret: bytes, size: int = 32) -> bytes:
        """Takes long, and lets other threads work meanwhile."""
        if self.method == PBKDF2:
            return hashlib.pbkdf2_hmac("sha256", secret, self.salt, self.numbers[0], size)
        n, r, p = self.numbers
        memory = _scrypt_bytes(n, r, p) + _SPARE_BYTES
        return hashlib.scrypt(secret, salt=self.salt, n=n, r=r, p=p, maxmem=memory, dklen=size)

    def line(self, secret: bytes) -> str:
        """The hash of a secret, as it stands in a file."""
        numbers = map(str, self.numbers)
        return ":".join([self.method, *numbers, _text(self.salt), _text(self.hash(secret))])


def read_line(line: str) -> tuple[Recipe, bytes]:
    """The recipe and the hash that a line says. AuthError, which does not repeat it."""
    method, *rest = line.split(":")
    *numbers, salt, hashed = rest if len(rest) > 1 else ("", "")
    try:
        recipe = Recipe(method, tuple(map(int, numbers)), _bytes(salt))
        key = _bytes(hashed)
    except (ValueError, Base64Error):
        raise AuthError("is no hash of a secret; `nsqtw hash-secret` makes one") from None
    if not _is_sound(recipe) or len(key) not in _HASH_BYTES:
        raise AuthError(f"is no hash by {SCRYPT} or {PBKDF2} that can be used; `nsqtw hash-secret` makes one")
    return recipe, key


def _is_sound(recipe: Recipe) -> bool:
    numbers = recipe.numbers
    if not recipe.salt or not all(number > 0 for number in numbers):
        return False
    if recipe.method == PBKDF2:
        return len(numbers) == 1 and numbers[0] <= _MAX_ITERATIONS
    if recipe.method != SCRYPT or len(numbers) != len(_DEFAULT_NUMBERS):
        return False
    n, _, p = numbers
    return n > 1 and n & (n - 1) == 0 and p <= _MAX_PARALLEL and _scrypt_bytes(*numbers) <= _MAX_MEMORY


def _scrypt_bytes(n: int, r: int, p: int) -> int:
    """The memory scrypt works in."""
    return 128 * r * (n + p)


def _bytes(text: str) -> bytes:
    return b64decode(text.encode("ascii"), validate=True)


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()

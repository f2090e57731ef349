"""Options for secrets and TLS, of reading and writing.

| option         | default          | meaning                                                                |
|----------------|------------------|------------------------------------------------------------------------|
| authSecret     | none             | the secret of AUTH; over HTTP it is sent as ``Authorization: Bearer``  |
| authSecretFile | none             | in place of it: a file with the secret, in one line                    |
| authSecretEnv  | none             | in place of it: an environment variable with the secret                |
| tls.caFile     | the machine's    | PEM file of the authorities that may sign nsqd's certificate           |
| tls.certFile   | none             | PEM file of the client's certificate, for an nsqd that requires one    |
| tls.keyFile    | tls.certFile     | PEM file of its key                                                    |
| tls.verify     | true             | ``false`` accepts any certificate, and so gives no protection against  |
|                |                  | somebody between the two                                               |

The process that connects reads files and environment variables, at its start (`files`). ``authSecret`` is part of the
job, which Spark sends to the tasks; Spark does not show it in plans.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Self

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.files import read_file
from pyspark_nsq.options.kinds import FilePath, Secret, Variable, YesNo, option

_SECRETS = {"auth_secret": "authSecret", "auth_secret_file": "authSecretFile", "auth_secret_env": "authSecretEnv"}


@dataclass(frozen=True, kw_only=True)
class Security:
    """The options of secrets and TLS. Hashable: readers and writers with equal options share connections."""

    auth_secret: str | None = option("authSecret", Secret(), None, secret=True)
    auth_secret_file: str | None = option("authSecretFile", FilePath(), None)
    auth_secret_env: str | None = option("authSecretEnv", Variable(), None)
    ca_file: str | None = option("tls.caFile", FilePath(), None)
    cert_file: str | None = option("tls.certFile", FilePath(), None)
    key_file: str | None = option("tls.keyFile", FilePath(), None)
    verify: bool = option("tls.verify", YesNo(), True)

    def __post_init__(self) -> None:
        given = [f'"{name}"' for attribute, name in _SECRETS.items() if getattr(self, attribute) is not None]
        if len(given) > 1:
            raise OptionError(f"options {' and '.join(given)} exclude each other; leave one out")
        if self.key_file and not self.cert_file:
            raise OptionError('option "tls.keyFile" needs "tls.certFile" beside it')
        if self.ca_file and not self.verify:
            raise OptionError('option "tls.caFile" is of no use when "tls.verify" is false')

    @property
    def security(self) -> Security:
        """These options alone, when they are part of others."""
        return Security(**{each.name: getattr(self, each.name) for each in dataclasses.fields(Security)})

    def without_secret(self) -> Self:
        """Return the options without a secret."""
        return dataclasses.replace(self, auth_secret=None, auth_secret_file=None, auth_secret_env=None)

    def secret(self) -> str | None:
        """Return the secret of AUTH, read on this machine.

        Raises OptionError when the file or the variable is missing, or has no secret.
        """
        if self.auth_secret_file is not None:
            path, held = read_file("authSecretFile", self.auth_secret_file)
            try:
                text = held.decode("ascii").strip()
            except UnicodeDecodeError:
                text = ""
            return self._held("authSecretFile", str(path), text)
        if self.auth_secret_env is not None:
            name = self.auth_secret_env
            found = os.environ.get(name)
            if found is None:
                raise OptionError(
                    f'option "authSecretEnv": the environment variable {name} is not set in this process; it must be '
                    f"set for the driver, and by spark.executorEnv.{name} or a secret of the cluster for the executors"
                )
            return self._held("authSecretEnv", name, found.strip())
        return self.auth_secret

    def _held(self, name: str, place: str, text: str) -> str:
        try:
            return Secret().read(name, text)
        except OptionError:
            raise OptionError(
                f'option "{name}": {place} must hold one line of printable ASCII without spaces'
            ) from None

    @property
    def sets_tls(self) -> bool:
        """Whether any of the options for TLS is set."""
        return bool(self.ca_file or self.cert_file or not self.verify)

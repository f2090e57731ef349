"""How the connector shows who it is, and checks who nsqd is: options of reading and writing.

| option       | default          | meaning                                                                  |
|--------------|------------------|--------------------------------------------------------------------------|
| authSecret   | none             | the secret of AUTH; over HTTP it travels as ``Authorization: Bearer``    |
| tls.caFile   | the machine's    | PEM file of the authorities that may have signed nsqd's certificate      |
| tls.certFile | none             | PEM file of the client's certificate, for an nsqd that asks for one      |
| tls.keyFile  | tls.certFile     | PEM file of its key                                                      |
| tls.verify   | true             | ``false`` takes any certificate, which protects against nobody who is    |
|              |                  | between the two                                                          |

Files are read where the tasks run. A name that is no file there is looked for among those of ``spark.files``.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.kinds import FilePath, Secret, YesNo, option


@dataclass(frozen=True, kw_only=True)
class Security:
    """Hashable: connections are shared among those who have the same."""

    auth_secret: str | None = option("authSecret", Secret(), None, secret=True)
    ca_file: str | None = option("tls.caFile", FilePath(), None)
    cert_file: str | None = option("tls.certFile", FilePath(), None)
    key_file: str | None = option("tls.keyFile", FilePath(), None)
    verify: bool = option("tls.verify", YesNo(), True)

    def __post_init__(self) -> None:
        if self.key_file and not self.cert_file:
            raise OptionError('option "tls.keyFile" needs "tls.certFile" beside it')
        if self.ca_file and not self.verify:
            raise OptionError('option "tls.caFile" is of no use when "tls.verify" is false')

    @property
    def security(self) -> Security:
        """These options alone, when they are part of others."""
        return Security(
            auth_secret=self.auth_secret,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            verify=self.verify,
        )

    @property
    def sets_tls(self) -> bool:
        """Whether any of the options for TLS is set."""
        return bool(self.ca_file or self.cert_file or not self.verify)

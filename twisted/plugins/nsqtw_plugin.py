"""What nsqtw adds to twistd. Every twistd start imports this file: it declares, and nothing else."""

from twisted.application.service import ServiceMaker

from nsqtw.plugins import AuthorizerPlugin, BackendPlugin, ProtocolPlugin, ReplicaStorePlugin

nsq = ServiceMaker("nsqtw", "nsqtw.tap", "An NSQ-compatible message broker", "nsq")

nsqlookupd = ServiceMaker("nsqlookupd", "nsqtw.tap_lookupd", "The directory of an NSQ cluster", "nsqlookupd")

nsqadmin = ServiceMaker("nsqadmin", "nsqtw.tap_admin", "The web page of an NSQ cluster", "nsqadmin")

disk = BackendPlugin(
    name="disk",
    summary="keeps messages in checksummed log files under the data path",
    argument_format="",
    dotted="nsqtw.backends.disk.backend.DiskFactory",
    files="nsqtw.backends.disk.data_files.DiskFiles",
)

dummy = BackendPlugin(
    name="dummy",
    summary="keeps messages in memory only and loses them with the process",
    argument_format="",
    dotted="nsqtw.backends.dummy.DummyFactory",
)

sqlite = BackendPlugin(
    name="sqlite",
    summary="keeps messages in one SQLite database under the data path",
    argument_format="",
    dotted="nsqtw.backends.sqlite.backend.SqliteFactory",
    files="nsqtw.backends.sqlite.database_check.SqliteFiles",
)

v2 = ProtocolPlugin(
    name="V2",
    summary="NSQ's protocol for producers and consumers",
    magic=b"  V2",
    dotted="nsqtw.protocols.v2.V2Factory",
)

v3 = ProtocolPlugin(
    name="V3",
    summary="headers, acknowledgements of ranges, several subscriptions on a connection",
    magic=b"  V3",
    dotted="nsqtw.protocols.v3.factory.V3Factory",
)

allow_all = AuthorizerPlugin(
    name="allow_all",
    summary="any secret may do everything",
    argument_format="",
    dotted="nsqtw.auth.allow_all.AllowAllFactory",
)

static = AuthorizerPlugin(
    name="static",
    summary="grants from a TOML file with hashed secrets, read again on SIGHUP",
    argument_format="the path of the file",
    dotted="nsqtw.auth.static.StaticFactory",
)

http = AuthorizerPlugin(
    name="http",
    summary="asks auth servers over HTTP, nsqd's way",
    argument_format="host:port or URL of an auth server, several with commas; --auth-http-address adds more",
    dotted="nsqtw.auth.http.HttpFactory",
)

postgres = ReplicaStorePlugin(
    name="postgres",
    summary="keeps the copy in PostgreSQL, which should have a synchronous standby",
    argument_format="the path of a TOML file with dsn, and perhaps password_file and data_set",
    dotted="nsqtw.replication.postgres.factory.PostgresFactory",
)

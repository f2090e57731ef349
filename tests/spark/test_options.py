"""Every mistake in an option is named before a job starts."""

import pytest
from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.kinds import is_name
from pyspark_nsq.options.security import Security
from pyspark_nsq.options.sink import MAX_BATCH_SIZE, MAX_BODY_BYTES, SinkOptions

REQUIRED = {"nsqdHttpAddresses": "127.0.0.1:4151"}


def test_the_defaults() -> None:
    expected = SinkOptions(
        addresses=("http://127.0.0.1:4151",),
        topic=None,
        batch_size=10_000,
        batch_bytes=2 * 1024 * 1024,
        max_in_flight=2,
        request_timeout_ms=10_000,
        retries=5,
        backoff_ms=100,
        max_backoff_ms=5000,
        on_empty="fail",
    )
    assert expected == SinkOptions.parse(REQUIRED)


def test_everything_set_with_keys_in_lower_case_as_spark_hands_them_over() -> None:
    given = {
        "nsqdhttpaddresses": "nsq-1:4151, https://nsq-2:4152/ ,[::1]:4151",
        "topic": "clicks.eu#ephemeral",
        "batchsize": "10",
        "batchbytes": "2000",
        "maxinflight": "4",
        "requesttimeoutms": "500",
        "retries": "3",
        "backoffms": "1",
        "maxbackoffms": "2",
        "onempty": "SKIP",
    }
    expected = SinkOptions(
        addresses=("http://nsq-1:4151", "https://nsq-2:4152", "http://[::1]:4151"),
        topic="clicks.eu#ephemeral",
        batch_size=10,
        batch_bytes=2000,
        max_in_flight=4,
        request_timeout_ms=500,
        retries=3,
        backoff_ms=1,
        max_backoff_ms=2,
        on_empty="skip",
    )
    assert expected == SinkOptions.parse(given)


def test_no_address() -> None:
    with pytest.raises(OptionError, match='"nsqdHttpAddresses" and "lookupdHttpAddresses" is required'):
        SinkOptions.parse({"topic": "t"})


@pytest.mark.parametrize(
    "address",
    ["", " , ", "127.0.0.1", "host:", "host:port", "host:0", "host:70000", "tcp://host:4150", ":4151"]
    + ["user@host:4151", "host:4151/path", "host:4151?x=1", "http://", "[::1:4151"],
)
def test_a_bad_address_is_named(address: str) -> None:
    with pytest.raises(OptionError, match="nsqdHttpAddresses") as caught:
        SinkOptions.parse({"nsqdHttpAddresses": address})
    assert address.strip(" ,") in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("batchSize", "many", 'must be a whole number, not "many"'),
        ("batchSize", "1.5", "whole number"),
        ("batchSize", "0", f"between 1 and {MAX_BATCH_SIZE}, not 0"),
        ("batchSize", str(MAX_BATCH_SIZE + 1), "between"),
        ("batchBytes", str(MAX_BODY_BYTES + 1), "between"),
        ("maxInFlight", "0", "between"),
        ("retries", "-1", "between"),
        ("requestTimeoutMs", "0", "between"),
        ("backoffMs", "-1", "between"),
        ("onEmpty", "maybe", "one of fail, skip"),
        ("topic", "no spaces", "no topic name"),
        ("topic", "", "no topic name"),
        ("topic", "x" * 65, "no topic name"),
    ],
)
def test_a_bad_value_is_named(name: str, text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        SinkOptions.parse(REQUIRED | {name: text})
    assert f'option "{name}"' in str(caught.value)


def test_an_unknown_option_is_an_error_that_guesses_what_was_meant() -> None:
    with pytest.raises(OptionError, match='unknown option "batchsizes"; did you mean "batchSize"'):
        SinkOptions.parse(REQUIRED | {"batchsizes": "3"})


def test_an_unknown_option_unlike_any_lists_all() -> None:
    with pytest.raises(
        OptionError, match=r'unknown option "zzz"; known are: .*nsqdHttpAddresses, lookupdHttpAddresses, '
    ):
        SinkOptions.parse(REQUIRED | {"zzz": "3"})


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 64, "t#ephemeral"])
def test_topic_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "t#other", "#ephemeral", "t\n"])
def test_what_is_no_topic_name(name: str) -> None:
    assert not is_name(name)


def test_security() -> None:
    given = {
        "nsqdHttpAddresses": "https://x:1",
        "authsecret": "s3cret",
        "tls.cafile": "ca.pem",
        "tls.certfile": "c.pem",
    }
    options = SinkOptions.parse(given)
    assert Security(auth_secret="s3cret", ca_file="ca.pem", cert_file="c.pem") == options.security
    assert "s3cret" not in repr(options) + repr(options.security)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tls.caFile": "ca.pem"}, "no address .* is https"),
        ({"tls.verify": "false"}, "no address .* is https"),
        ({"tls.verify": "perhaps"}, "one of true, false"),
        ({"tls.keyFile": "k.pem"}, 'needs "tls.certFile"'),
        ({"tls.caFile": "ca.pem", "tls.verify": "false"}, "of no use"),
        ({"tls.caFile": ""}, "names no file"),
        ({"authSecret": "two words"}, "printable ASCII"),
        ({"authSecret": "line\nbreak"}, "printable ASCII"),
    ],
)
def test_security_that_cannot_be(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        SinkOptions.parse(REQUIRED | given)
    assert "line" not in str(caught.value)


def test_nsqds_by_nsqlookupd() -> None:
    options = SinkOptions.parse({"lookupdHttpAddresses": "a:4161,https://b:4161", "lookupdPollMs": "5"})
    assert (
        options.addresses,
        options.lookupds,
        options.lookupd_poll_ms,
    ) == ((), ("http://a:4161", "https://b:4161"), 5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lookupdHttpAddresses": "b:4161"}, '"nsqdHttpAddresses" and "lookupdHttpAddresses" exclude each other'),
        ({"lookupdPollMs": "5"}, '"lookupdPollMs" is of no use without "lookupdHttpAddresses"'),
        ({"maxTopics": "0"}, "between 1 and"),
        ({"topic": "t", "maxTopics": "5"}, '"maxTopics" is of no use with "topic"; leave it out'),
        ({"burstRows": "5"}, '"burstRows" is of no use without "maxRowsPerSecond"; leave it out, or set that, too'),
        ({"backoffMs": "500", "maxBackoffMs": "499"}, '"backoffMs" is 500, more than "maxBackoffMs", which is 499'),
        ({"retries": "0", "backoffMs": "5"}, '"backoffMs" is of no use without "retries"'),
        ({"authSecret": "a", "authSecretFile": "b"}, '"authSecret" and "authSecretFile" exclude each other'),
        ({"authSecretFile": "a", "authSecretEnv": "B"}, '"authSecretFile" and "authSecretEnv" exclude each other'),
        ({"authSecretFile": ""}, '"authSecretFile" names no file'),
        ({"authSecretEnv": "TWO WORDS"}, '"authSecretEnv" must be the name of an environment variable'),
        ({"authSecretConf": "spark.nsq.secret"}, 'use "authSecretFile" or "authSecretEnv"'),
        ({"kafka.bootstrap.servers": "h:9092"}, 'Kafka\'s option; here it is "nsqdHttpAddresses" or'),
        ({"KAFKA.security.protocol": "SSL"}, "Kafka's option; here it is"),
        ({"nsqdTcpAddresses": "h:4150"}, 'use "nsqdHttpAddresses", usually with port 4151'),
        ({"lookupdTcpAddresses": "h:4160"}, 'use "lookupdHttpAddresses", usually with port 4161'),
        ({"tls": "true"}, "write https:// before the addresses"),
        ({"channel": "a b"}, '"channel"'),
        ({"spoolPath": "/x"}, '"spoolPath" is for reading a channel; leave it out'),
        ({"failOnDataLoss": "true"}, '"failOnDataLoss" is for reading a channel or reading a log; leave it out'),
        ({"maxOffsetsPerTrigger": "1"}, '"maxOffsetsPerTrigger" is for reading a channel or reading a log; leave'),
        ({"maxInFlightMessages": "1"}, 'is for reading a channel; did you mean "maxInFlight"'),
        ({"mode": "append"}, r'the mode is set by mode\("append"\)'),
        ({"defer": "5"}, 'the column "defer" has the delay of each message'),
        ({"path": "t"}, 'a topic is named by the option "topic"'),
        ({"replay": "log"}, '"replay" is for reading a log; leave it out'),
        ({"numPartitions": "4"}, r"use repartition\(n\)"),
        ({"includeHeaders": "true"}, "become headers without it"),
        ({"topics": "t"}, 'did you mean "topic"'),
        ({"nsqdHttpAdresses": "h:4151"}, 'did you mean "nsqdHttpAddresses"'),
        ({"tls.caFiles": "ca.pem"}, 'did you mean "tls.caFile"'),
    ],
)
def test_each_mistake_is_one_line_with_a_remedy(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        SinkOptions.parse(REQUIRED | given)
    assert "\n" not in str(caught.value)


def test_tls_options_need_an_https_nsqlookupd() -> None:
    given = {"lookupdHttpAddresses": "a:4161", "tls.caFile": "ca.pem"}
    with pytest.raises(OptionError, match='no address in "lookupdHttpAddresses" is https'):
        SinkOptions.parse(given)
    assert SinkOptions.parse(given | {"lookupdHttpAddresses": "https://a:4161"}).sets_tls


def test_what_spark_adds_for_itself_is_no_mistake() -> None:
    assert SinkOptions.parse(REQUIRED) == SinkOptions.parse(REQUIRED | {"checkpointlocation": "/tmp/c"})

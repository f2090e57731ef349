"""The configuration of ``nsqtw-spark etl``: each mistake is one line with the place and the remedy."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark_nsq.errors import ConfigError
from pyspark_nsq.jobs.etl.config import load
from pyspark_nsq.jobs.etl.reference import page
from pyspark_nsq.jobs.etl.sections import SECTIONS
from pyspark_nsq.jobs.etl.toml_lines import key_lines
from pyspark_nsq.jobs.main import WRONG_USAGE, run

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/spark-etl.md"
GOOD = """\
[nsq]
nsqd_http_addresses = "127.0.0.1:4151"

[source]
topic = "clicks"
schema = "id string"

[[view]]
name = "some"
sql = '''
SELECT id
FROM messages'''

[query]
sql = "SELECT * FROM some"

[sink]
topic = "counts"

[run]
checkpoint = "checkpoint"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "p.toml"
    path.write_text(text)
    return path


def test_a_file_with_the_least_that_is_required(tmp_path: Path) -> None:
    config = load(written(tmp_path, GOOD))
    assert (
        config.source.topic,
        config.source.kind,
        config.source.view,
        config.source.options,
    ) == (("clicks",), "log", "messages", {})
    assert (config.watermark, config.dead_letters, config.table) == (None, None, ())
    assert config.until_caught_up().run.trigger == "available_now"
    assert [str(tmp_path / "a"), "/a", "s3://b/a"] == [config.path(text) for text in ("a", "/a", "s3://b/a")]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('topic = "clicks"', 'tpoic = "clicks"', 'line 5: unknown key "tpoic" in [source]; did you mean "topic"?'),
        ("[sink]", "[sinc]", 'line 17: unknown section "sinc"; did you mean "sink"?'),
        ('[run]\ncheckpoint = "checkpoint"\n', "", "[run] is missing; required are [nsq], [source], [query]"),
        ('checkpoint = "checkpoint"', "", 'line 20: [run] needs the key "checkpoint"'),
        (
            'topic = "clicks"',
            "topic = 5",
            'line 5: "topic" must be the name of a topic: 1 to 64 of a-z A-Z 0-9 . _ -, not 5',
        ),
        ('topic = "clicks"', "topic = []", 'line 5: "topic" must not be an empty array'),
        ('topic = "clicks"', 'topic = "clicks', "is not TOML: "),
        ('schema = "id string"', 'kind = "chanel"', "line 6: \"kind\" must be log or channel, not 'chanel'"),
        ('schema = "id string"', "", 'line 4: format = "json" needs the key "schema"'),
        ('schema = "id string"', 'schema = "id string"\nformat = "text"', 'line 6: "schema" needs format = "json"'),
        ('schema = "id string"', 'schema = "id string"\nchannel = "c"', 'line 7: "channel" needs kind = "channel"'),
        (
            'schema = "id string"',
            'schema = "id string"\nstarting = "latest"',
            'line 7: "starting" must be "earliest" or',
        ),
        ('schema = "id string"', 'schema = ""', 'line 6: "schema" must be a string that is not empty'),
        ("[source]", 'auth_secret = "x"\n[source]', 'put it into a file, and name that in "auth_secret_file" of [nsq]'),
        ("[source]", 'lookupd_http_addresses = "h:1"\n[source]', "exclude each other"),
        (
            'nsqd_http_addresses = "127.0.0.1:4151"',
            "",
            'line 1: "nsqd_http_addresses" or "lookupd_http_addresses" is req',
        ),
        (
            'topic = "counts"',
            'topic = "clicks"',
            'line 18: topic "clicks" is read by [source]: the pipeline would read',
        ),
        ('topic = "counts"', 'topic = "counts"\npath = "x"', 'line 18: [sink] needs either "topic" or "path"'),
        ('topic = "counts"', 'topic = "counts"\nformat = "csv"', 'line 19: "format" is for a table with "path"'),
        ('topic = "counts"', 'path = "x"\nvalue = "json"', 'line 19: "value" is for a topic'),
        ('topic = "counts"', 'path = "x"\noutput_mode = "update"', 'line 19: a table can only "append"'),
        (
            "[[view]]",
            '[[table]]\nname = "Some"\npath = "x"\n[[view]]',
            'line 12: the name "some" is that of a [[table]], too',
        ),
        (
            "[[view]]",
            '[[table]]\nname = "t"\npath = "x"\nformat = "csv"\n[[view]]',
            'line 8: [[table]] "t" needs the key "schem',
        ),
        ("[[view]]", "[view]", "line 8: write [[view]] as the header of this section"),
        ('name = "some"', 'name = "so me"', 'line 9: "name" must be a name: a letter, then'),
        ('sql = "SELECT * FROM some"', "", 'line 14: [query] needs either "sql" or "file"'),
        ("[run]", '[run]\ntrigger = "often"', 'line 21: "trigger" must be "available_now" or an interval such as'),
        (
            "[run]",
            '[watermark]\ncolumn = "id"\ndelay = "soon"\n[run]',
            'line 22: "delay" must be an interval such as "10',
        ),
        ("[source]", 'nsqd_tcp_addresses = "h:1"\n[source]', 'line 4: "nsqd_tcp_addresses" needs kind = "channel" in'),
        ("[source]", "tls = true\n[source]", 'line 4: "tls" needs kind = "channel" in [source]; write https://'),
        ("[run]", '[dead_letters]\ntopic = "counts"\n[run]', 'line 21: "topic" is that of [sink]; name another topic'),
        ('topic = "counts"', 'path = "checkpoint"', 'line 21: "checkpoint" is a folder that rows are written to'),
        (
            "[run]",
            '[dead_letters]\npath = "d"\nchannel = "x"\n[run]',
            'line 22: "channel" needs kind = "channel" in [source]',
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError) as error:
        load(path)
    assert problem in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.is_usage


def test_channels_need_what_a_log_does_not(tmp_path: Path) -> None:
    tcp = 'nsqd_tcp_addresses = "127.0.0.1:4150"'
    channel = GOOD.replace("[source]", f"{tcp}\n[source]").replace(
        '"id string"', '"id string"\nkind = "channel"\nchannel = "c"'
    )
    with pytest.raises(ConfigError, match='kind = "channel" needs the key "spool"'):
        load(written(tmp_path, channel))
    channel = channel.replace('channel = "c"', 'channel = "c"\nspool = "spool"')
    assert load(written(tmp_path, channel)).source.channel == "c"
    with pytest.raises(ConfigError, match='"nsqd_http_addresses" is for topics that are written, and there is none'):
        load(written(tmp_path, channel.replace('topic = "counts"', 'path = "out"')))
    with pytest.raises(ConfigError, match='a topic is written over HTTP: "nsqd_http_addresses" of'):
        load(written(tmp_path, channel.replace('nsqd_http_addresses = "127.0.0.1:4151"', "")))
    with pytest.raises(ConfigError, match="two queries on one channel share its messages"):
        load(written(tmp_path, channel + '[dead_letters]\ntopic = "d"\nchannel = "c"\n'))


def test_the_command_reports_a_mistake_without_starting_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "none.toml"
    assert run(["etl", str(missing)]) == WRONG_USAGE
    assert f"nsqtw-spark: cannot read {missing}: No such file or directory\n" == capsys.readouterr().err


def test_lines_of_keys() -> None:
    text = 'a = 1\n[s]\nb = """\nc = 2\n[t]\n"""\nd.e = 1\n[[s]]\nb = 1 # x\n'
    expected = {
        ("", 0, "a"): 1,
        ("s", 0, None): 2,
        ("s", 0, "b"): 3,
        ("s", 0, "d"): 7,
        ("s", 1, None): 8,
        ("s", 1, "b"): 9,
    }
    assert expected == key_lines(text)


def test_the_page_of_the_reference_is_that_of_the_declarations() -> None:
    command = [sys.executable, "-m", "pyspark_nsq.jobs.etl.reference"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert page() == made == PAGE.read_text("utf-8"), "make it: python -m pyspark_nsq.jobs.etl.reference"
    assert len(SECTIONS) == made.count("\n## ")

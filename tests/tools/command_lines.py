"""Command lines of NSQ's tools that end by themselves: mistakes, versions, help."""

from __future__ import annotations

import shlex
from typing import Any

from tests.tools.nsq_tool import Programs
from tests.tools.scenarios import outcome_of

_NSQD = "-nsqd-tcp-address=127.0.0.1:1"
_LOOKUPD = "-lookupd-http-address=127.0.0.1:1"
_TOOLS = ("nsq_tail", "nsq_stat", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "to_nsq")
_ALL = (
    "",
    "--version",
    "-version=true",
    "-version=false",
    "-version=maybe",
    "-version word",
    "-h",
    "--help",
    "-nope",
    "--nope=1",
    "---topic",
    "-=x",
    "-topic",
    "-topic=",
    "-- -nope",
    "- x",
)
_CONSUMING = ("nsq_tail -topic=t", "nsq_to_http -topic=t -post=http://a", "nsq_to_nsq -topic=t")
_MORE = f"""
nsq_tail -max-in-flight=x
nsq_tail -max-in-flight=0x10
nsq_tail -max-in-flight=1_000
nsq_tail -max-in-flight=1.5
nsq_tail -max-in-flight=99999999999999999999
nsq_tail -topic=t {_NSQD} -topic=u -channel='a b'
nsq_tail -topic='a b' {_NSQD}
nsq_tail -topic=a,b {_NSQD}
nsq_stat -topic=t
nsq_stat -channel=c
nsq_stat -topic=t -channel=c
nsq_stat -topic=t -channel=c -interval=0
nsq_stat -topic=t -channel=c -interval=5
nsq_stat -topic=t -channel=c -interval=1d
nsq_stat -topic=t -channel=c -interval=-1s
nsq_stat -topic=t -channel=c -http-client-connect-timeout=0
nsq_stat -topic=t -channel=c -http-client-request-timeout=0
nsq_stat -topic=t -channel=c -count=0
nsq_stat -topic=t -channel=c -count=-1
nsq_stat -topic=t -channel=c -nsqd-http-address=a:1 -lookupd-http-address=http://a:1
nsq_stat -topic=t -channel=c -nsqd-http-address=http://a:1
nsq_stat -topic=t -channel=c -lookupd-http-address=https://a:1
nsq_to_file word {_NSQD}
nsq_to_file -gzip true
nsq_to_file -log-level=loud
nsq_to_file -log-level=WARN
nsq_to_file -version -log-level=loud
nsq_to_file -channel=
nsq_to_file -http-client-connect-timeout=0
nsq_to_file -http-client-request-timeout=-1s
nsq_to_file {_NSQD} {_LOOKUPD}
nsq_to_file {_NSQD} -gzip-level=0
nsq_to_file {_NSQD} -gzip-level=10
nsq_to_file {_NSQD}
nsq_to_file {_NSQD} -topic-pattern=x
nsq_to_file -sync-interval=x
nsq_to_file -rotate-interval=1.5.s
nsq_to_file -gzip=maybe
nsq_to_http -header=x
nsq_to_http -header=x:
nsq_to_http -header=:x
nsq_to_http -header=a=b
nsq_to_http -topic=t -channel=
nsq_to_http -topic=t -content-type=a/b
nsq_to_http -topic=t -content-type=a/b -get=http://a/%s
nsq_to_http -topic=t -content-type= -post=http://a
nsq_to_http -topic=t
nsq_to_http -topic=t {_NSQD} {_LOOKUPD}
nsq_to_http -topic=t {_NSQD}
nsq_to_http -topic=t {_NSQD} -get=http://a/%s -post=http://a
nsq_to_http -topic=t {_NSQD} -get=http://a
nsq_to_http -topic=t {_NSQD} -get=http://a/%s%s
nsq_to_http -topic=t {_NSQD} -get=http://a/%%s
nsq_to_http -topic=t {_NSQD} -get=http://a/%s -get=http://a/%d
nsq_to_http -topic=t {_NSQD} -post=http://a -sample=1.5
nsq_to_http -topic=t {_NSQD} -post=http://a -sample=-0.1
nsq_to_http -topic=t {_NSQD} -post=http://a -sample=nan
nsq_to_http -topic=t {_NSQD} -post=http://a -sample=0x1p-2
nsq_to_http -topic=t {_NSQD} -post=http://a -sample=x
nsq_to_http -topic=t {_NSQD} -post=http://a -sample=' 1'
nsq_to_http -topic=t {_NSQD} -post=http://a -n=0
nsq_to_http -topic=t {_NSQD} -post=http://a -n=-1
nsq_to_http -topic=t {_NSQD} -post=http://a -status-every=50
nsq_to_http -topic='a b' {_NSQD} -post=http://a
nsq_to_http -topic=t -channel='a b' {_NSQD} -post=http://a
nsq_to_nsq -topic=t -channel=
nsq_to_nsq -topic=t -topic='a*'
nsq_to_nsq -topic=t -destination-topic='a*'
nsq_to_nsq -topic=t -destination-topic='#ephemeral'
nsq_to_nsq -topic=t -channel='a b'
nsq_to_nsq -topic=t
nsq_to_nsq -topic=t {_NSQD} {_LOOKUPD}
nsq_to_nsq -topic=t {_NSQD}
nsq_to_nsq -topic=t {_NSQD} -destination-nsqd-tcp-address=127.0.0.1:1 -producer-opt=nope
nsq_to_nsq -topic=t {_NSQD} -destination-nsqd-tcp-address=127.0.0.1:1 -producer-opt=heartbeat_interval,2m
to_nsq -topic=t
to_nsq -topic=t -delimiter=
to_nsq -topic=t -delimiter=ab
to_nsq -topic=t -delimiter=é
to_nsq -topic=t -rate=1.5
to_nsq -topic=t -producer-opt=nope {_NSQD}
to_nsq -topic=t {_NSQD}
"""
_LINES = [
    *(f"{tool} {flags}".strip() for tool in _TOOLS for flags in _ALL),
    *(f"{tool} {_NSQD} {_LOOKUPD}" for tool in _CONSUMING),
    *(
        f"{tool} {_NSQD} -destination-nsqd-tcp-address=127.0.0.1:1 {flags}".replace(
            "" if "to_nsq" in tool else "-destination-nsqd-tcp-address=127.0.0.1:1 ", ""
        )
        for tool in _CONSUMING
        for flags in ("", "-consumer-opt=nope", "-consumer-opt=nope,1", "-consumer-opt=sample_rate,100")
    ),
    *_MORE.strip().splitlines(),
]
COMMAND_LINES = [*dict.fromkeys(_LINES)]
"""As they are typed into a shell."""


def played(tools: Programs, line: str) -> dict[str, Any]:
    """Run a command line. Returns its outcome."""
    return outcome_of(tools.run(*shlex.split(line)))

"""Requests that schemathesis makes from our OpenAPI document, to a running broker: every answer is one it describes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from nsqtw.api.openapi import described
from nsqtw.api.site import endpoints
from tests.process import NsqdProcess
from tests.wire import HOST

EXAMPLES = 8
"""For each operation."""
TAKE_LONG = {"/debug/pprof/profile", "/debug/pprof/heap"}
ENDS = {"/v2/drain"}
"""A broker that has nothing to deliver stops."""
ALWAYS_FAIL = {"/debug/freememory", "/debug/setblockrate"}
CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance, unsupported_method]

schema = schemathesis.openapi.from_dict(described(endpoints()))


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
    """A running broker, which must still be well in the end."""
    process = NsqdProcess(tmp_path_factory.mktemp("api"))
    try:
        process.start()
        process.create("waiting", "c")  # so that a drain, which one of the requests begins, does not end
        process.publish("waiting", [b"x"])
        yield process
        process.stop()
    finally:
        process.close()


@schema.exclude(path=[*TAKE_LONG, *ENDS]).parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_one_the_document_describes(case: schemathesis.Case, nsqd: NsqdProcess) -> None:
    if str(case.query.get("wait", "")).isdecimal():
        case.query["wait"] = "1"  # millisecond: there may be nothing to read
    response = case.call(base_url=f"http://{HOST}:{nsqd.http_port}", timeout=60)
    case.validate_response(response, checks=CHECKS + ([] if case.path in ALWAYS_FAIL else [not_a_server_error]))

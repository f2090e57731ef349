"""The verb `nsqtw doctor`: all checks, and the table of their findings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime

from nsqtw.cli.contexts import contexts_path
from nsqtw.cli.doctor.cluster import check_cluster
from nsqtw.cli.doctor.local import (
    CheckSubject,
    Finding,
    Level,
    check_config,
    check_data_path,
    check_limits,
    check_secret,
    check_tls_files,
    open_file_limits,
)
from nsqtw.cli.failures import ExitCode
from nsqtw.cli.output import Column, Document, Table
from nsqtw.cli.session import Session
from nsqtw.errors import NotFound, OptionError

_COLUMNS = (
    Column("level", ""),
    Column("check", "CHECK"),
    Column("what", "WHAT"),
    Column("text", "FOUND"),
)


def doctor(session: Session, data_path: str | None, replicate: str) -> Document:
    """`nsqtw doctor`. The exit code is FAILED when there is an error."""
    findings = list(_findings(session, data_path, replicate))
    rows = [
        {
            "level": finding.level.value,
            "check": finding.check,
            "what": finding.what,
            "text": finding.text,
            "remedy": finding.remedy,
        }
        for finding in findings
    ]
    errors = sum(finding.level is Level.ERROR for finding in findings)
    warnings = sum(finding.level is Level.WARNING for finding in findings)
    if errors:
        session.exit_code = ExitCode.FAILED
    remedies = [
        f"{finding.level.value}: {finding.check} {finding.what}: {finding.text}\n    {finding.remedy}"
        for finding in findings
        if finding.level is not Level.OK
    ]
    summary = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}"
    return Document(
        {"errors": errors, "warnings": warnings, "findings": rows},
        [Table(_COLUMNS, rows), "", *remedies, summary],
    )


def _findings(session: Session, data_path: str | None, replicate: str) -> Iterator[Finding]:
    yield check_limits(*open_file_limits())
    if data_path is not None:
        yield from check_data_path(data_path)
    if replicate:
        # Only this check waits for what a replica store takes.
        from nsqtw.cli.doctor.replica import check_replica_store

        yield from check_replica_store(replicate)
    try:
        contexts = session.contexts
        yield check_config(contexts, session.context_name)
        access = session.access()
    except (OptionError, NotFound) as error:
        path = str(contexts_path(os.environ))
        yield CheckSubject("config file", path).error(str(error), "correct the file, the option, or the variable")
        return
    yield from check_secret(access)
    problems = list(check_tls_files(access, datetime.now(UTC)))
    yield from problems
    try:
        access.secret()
    except OptionError:
        return
    if not any(finding.check == "TLS files" and finding.level is Level.ERROR for finding in problems):
        yield from check_cluster(access)


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"

"""
The log of `twistd nsq`: nsqd's lines or JSON, where twistd's own options say (`--logfile`, `--nodaemon`).

twistd takes the observer it finds on the application, and otherwise makes one. The one it would have made knows the
file and how it is rotated (SIGUSR1), so that one is taken and only told how to format; twistd has no public door to
it. `--logger` and `--syslog` are other logs, with formats of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.logger import FileLogObserver, ILogObserver
from twisted.scripts._twistd_unix import UnixAppLogger

from nsqtw.errors import OptionError
from nsqtw.net.log import log_format
from nsqtw.options import Options


def use_format(application: Any, given: Mapping[str, Any], options: Options) -> None:
    """
    Have the application of a twistd with the options `given` log in our format. OptionError when that cannot be and
    is asked for.
    """
    if given.get("logger") or given.get("syslog"):
        if options.log_format != "text":
            raise OptionError(f"--log-format={options.log_format} is not for twistd's --logger and --syslog")
        return
    observer: FileLogObserver = UnixAppLogger(given)._getLogObserver()  # type: ignore[no-untyped-call]
    observer.formatEvent = log_format(options)
    application.setComponent(ILogObserver, observer)

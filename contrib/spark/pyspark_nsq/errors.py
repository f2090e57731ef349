"""The errors of the connector. Their messages are for the author of the job.

NsqSparkError
    OptionError         an option is missing, unknown or has a bad value
    ConfigError         a pipeline's configuration cannot be used
    PipelineError       a query of a pipeline failed
    SchemaError         the DataFrame has columns the sink cannot use, or lacks one
    RowError            one row cannot become a message
    PublishError        no nsqd took a request, retries included
    ReadError           no nsqd or nsqlookupd can be read from, one refused, or a message cannot be stored
    SpoolError          the spool of a stream cannot be used, or lacks rows that Spark requests
    DataLossError       messages that a query has to read are no longer kept, or are damaged
    ArchiveError        the files of an archive cannot be written or read, or are those of another archive
    ValueFormatError    a message is not of the form of the option valueFormat
    NotSupportedError   something this version does not do
    MonitoringError     the metrics of queries cannot be served
    JavaNotFoundError   no Java that can run Spark
    SessionError        Spark cannot be started
    ForkedReactorError  the process was forked from one whose reactor runs
    ReactorStoppedError Twisted's reactor has ended, and with it the connector in this process
"""


class NsqSparkError(Exception):
    """Base of the errors of the connector. `is_usage`: the author of the job has to change the job."""

    is_usage = False


class OptionError(NsqSparkError):
    """An option is missing, unknown or has a bad value. Found before the job starts."""

    is_usage = True


class ConfigError(NsqSparkError):
    """A pipeline's configuration cannot be used. Found before a job starts."""

    is_usage = True


class PipelineError(NsqSparkError):
    """A query of a pipeline failed."""


class SchemaError(NsqSparkError):
    """The DataFrame's columns do not fit the sink. Found before the job starts."""


class RowError(NsqSparkError):
    """One row cannot become a message: empty, too big, or with a bad topic or defer."""


class PublishError(NsqSparkError):
    """A request was refused, or failed in every attempt."""


class ReadError(NsqSparkError):
    """nsqd or nsqlookupd refused, none of them can be reached, or a message cannot be stored."""


class SpoolError(NsqSparkError):
    """The spool of a stream cannot be read or written, is in use, or lacks rows that Spark requests."""


class DataLossError(NsqSparkError):
    """Messages that should be in a log are not kept any more, or are damaged."""


class ArchiveError(NsqSparkError):
    """The files of an archive cannot be written or read, or belong to another archive."""


class ValueFormatError(NsqSparkError):
    """A message is not of the form of the option ``valueFormat``."""


class NotSupportedError(NsqSparkError):
    """The connector does not do this."""


class MonitoringError(NsqSparkError):
    """The metrics of queries cannot be served: the port is in use, or a package is missing."""

    is_usage = True


class JavaNotFoundError(NsqSparkError):
    """No Java that can run Spark was found."""


class SessionError(NsqSparkError):
    """Spark cannot be started with this master and these settings."""


class ForkedReactorError(NsqSparkError):
    """The reactor was started in a parent process; it does not run in this one."""


class ReactorStoppedError(NsqSparkError):
    """Twisted's reactor did not start, or has ended. A process cannot start it again."""

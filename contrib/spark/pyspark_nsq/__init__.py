"""``format("nsq")`` for PySpark: writing and reading topics of NSQ.

Spark imports every installed top-level module named ``pyspark_*`` on the first use of a data source and
registers its ``DefaultSource``, so this package needs no other registration. Every Spark
session on the machine therefore pays for this import: it loads neither Twisted nor pyarrow.
"""

from pyspark_nsq.datasource import NsqDataSource
from pyspark_nsq.errors import NotSupportedError, NsqSparkError, OptionError, PublishError, RowError, SchemaError
from pyspark_nsq.options.sink import SinkOptions

DefaultSource = NsqDataSource

__all__ = [
    "DefaultSource",
    "NotSupportedError",
    "NsqDataSource",
    "NsqSparkError",
    "OptionError",
    "PublishError",
    "RowError",
    "SchemaError",
    "SinkOptions",
]

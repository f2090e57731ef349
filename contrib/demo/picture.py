"""The picture of the pipeline for a terminal. docs/images/demo.svg shows the same."""

PICTURE = """\
                                   ┌─────────────────┐
  records ──▶ Spark ──────────────▶│ topic records   ├──▶ channel gnsq ──▶ gnsq
              format("nsq")        │ of nsqd, which  ├──▶ channel own ───▶ our consumer
                                   │ is killed       │
                                   │ half-way        ├──▶ nsqtw-spark etl ──▶ SQL ──▶ topic summary
                                   └────────┬────────┘
                                            └──▶ nsqtw-spark archive ──▶ files ──┐
                                                                                 │
  our consumer ◀── topic replayed ◀── nsqtw-spark replay ◀───────────────────────┘
"""

"""
Fuzzing: hostile inputs for every parser (docs/explanation/fuzzing.md).

    python -m tests.fuzz --minutes 5              all targets, another seed each time (make fuzz MINUTES=5)
    python -m tests.fuzz replay codec FILE        one input again
    python -m tests.fuzz table                    the examples of `make test`, as the table in the docs

The parts: `mutation` changes bytes, `oddities` has the values that parsers stumble over, a target in `targets` makes
inputs by its grammar and tries them, `meter` counts what that costs, `campaign` runs many and keeps what failed.
"""

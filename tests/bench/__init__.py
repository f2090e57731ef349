"""
Load tests of a running broker, from processes of their own.

``python -m tests.bench`` prints rates and the broker's CPU per message; ``python -m tests.bench.endurance``
watches its memory and disk over a long run. Both drive any executable that takes nsqd's flags.
"""

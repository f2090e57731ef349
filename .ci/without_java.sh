#!/usr/bin/env bash
# without_java.sh [TEST ...]: a copy of this commit is installed by `make venv` and tested as on a machine that has no Java:
# PATH leads to every program but java, JAVA_HOME is not set, and nothing is left from earlier runs.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
git clone --quiet . "$place/nsqtw"
mkdir "$place/bin"
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
    # What an earlier folder has stays, as on PATH.
    ln -s "$folder"/* "$place/bin" 2>/dev/null || true
done
rm -f "$place"/bin/java*
python=$(python3 -c 'import sys; print(sys.executable)')
cd "$place/nsqtw"
unset JAVA_HOME
export PATH="$place/bin" XDG_CACHE_HOME="$place/cache"
if command -v java; then
    echo "there is a java on PATH still" >&2
    exit 1
fi
make venv PYTHON="$python"
.venv/bin/python -m pyspark_nsq.java
.venv/bin/python -m pytest "${@:-tests/spark}"

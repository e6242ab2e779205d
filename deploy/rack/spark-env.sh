#!/usr/bin/env bash
# For conf/spark-env.sh on each node of a standalone cluster: executors inherit what their worker has.
# Copy pipelines/racks/resolver.py beside it as oncelake-rack.py; it needs Python 3.7 or later and nothing else.
eval "$(python3 "${SPARK_CONF_DIR:-$(dirname "${BASH_SOURCE[0]}")}/oncelake-rack.py")"

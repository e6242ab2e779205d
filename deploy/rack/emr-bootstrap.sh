#!/usr/bin/env bash
# A bootstrap action for EMR (YARN): puts oncelake-rack.py on each node. Its argument says where the file lies,
# e.g. s3://bucket/oncelake-rack.py (pipelines/racks/resolver.py). emr-configurations.json, beside it, lets
# YARN's node managers ask it when they start, and containers inherit the answer.
set -euo pipefail
sudo mkdir -p /opt/oncelake
sudo aws s3 cp "$1" /opt/oncelake/oncelake-rack.py

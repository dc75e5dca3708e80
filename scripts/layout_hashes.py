#!/usr/bin/env python3
"""Writes data/traces/layout_hashes.json: what tests/lab/layout_hash_test.cc expects.

Usage: layout_hashes.py BUILD_FOLDER

Run it when a policy's placement has changed on purpose, and say so in the commit.
"""
import json
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
traces = sorted((root / "data/traces").glob("*.csv.zst"))
replay = [pathlib.Path(sys.argv[1]) / "tenon", "replay", *traces, "--policy", "all", "--json"]
results = json.loads(subprocess.run(replay, check=True, capture_output=True, text=True).stdout)

hashes = {}
for result in results:
    if result["policy"] != "null":
        hashes.setdefault(result["trace"], {})[result["policy"]] = result["layout_hash"]
path = root / "data/traces/layout_hashes.json"
path.write_text(json.dumps(hashes, indent=1) + "\n")
print(f"wrote {path}")

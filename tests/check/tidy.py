#!/usr/bin/env python3
"""tidy.py BASE [BUILD]: clang-tidy over the lines of C++ that changed since the commit BASE.

BUILD (build/release) is a configured and built folder: its command lines are used, each file by itself
and without precompiled headers (units.py), since clang reads neither gcc's nor a unity batch's.
A header that changed is checked through its source file, or through one that includes it.  No file is
begun after SECONDS: a gate of CI must end in time; files with the most changed lines come first.

Prints what clang-tidy finds; exits with 1 where it finds something.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import units

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def changed_lines(diff):
    """The [first, last] ranges of changed lines by path, of the text of a `git diff -U0`."""
    ranges = {}
    for part in re.split(r"^diff --git ", diff, flags=re.MULTILINE)[1:]:
        name = re.search(r"^\+\+\+ b/(.+)$", part, re.MULTILINE)
        if not name:
            continue  # deleted
        for first, count in HUNK.findall(part):
            length = int(count or 1)
            if length:
                ranges.setdefault(name[1].strip(), []).append([int(first), int(first) + length - 1])
    return ranges


def sources_of(ranges, known, read):
    """The source files through which the changed files are checked, the most changed first.

    `known`: the source files there are commands for.  `read`: a file's text by its path.
    """
    weights = {}
    for name, lines in ranges.items():
        weight = sum(last - first + 1 for first, last in lines)
        source = name
        if name.endswith(".h"):
            source = name[:-2] + ".cc"
            if source not in known:
                source = next((user for user in sorted(known) if f'"{name}"' in read(user)), None)
        if source in known:
            weights[source] = weights.get(source, 0) + weight
    return sorted(weights, key=lambda source: (-weights[source], source))


def main():
    if len(sys.argv) not in (2, 3):
        print("tidy: usage: tests/check/tidy.py BASE [BUILD]", file=sys.stderr)
        return 2
    build = Path(sys.argv[2] if len(sys.argv) == 3 else ROOT / "build/release").resolve()
    diff = subprocess.run(
        ["git", "diff", "-U0", "-M", sys.argv[1], "--", "*.cc", "*.h"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    ranges = changed_lines(diff)
    commands = {os.path.relpath(file, ROOT): command for file, command in units.commands(build).items()}
    sources = sources_of(ranges, commands, lambda name: (ROOT / name).read_text())
    line_filter = json.dumps([{"name": name, "lines": lines} for name, lines in ranges.items()])
    stop_at = time.monotonic() + SECONDS
    late = []
    with tempfile.TemporaryDirectory() as folder:
        entries = []
        for source in sources:
            words, directory = commands[source]
            arguments = units.for_clang(words) + ["-c", str(ROOT / source)]
            entries.append({"file": str(ROOT / source), "directory": directory, "arguments": arguments})
        (Path(folder) / "compile_commands.json").write_text(json.dumps(entries))

        def one(source):
            if time.monotonic() > stop_at:
                late.append(source)
                return False
            done = subprocess.run(
                ["clang-tidy", "-p", folder, "--quiet", f"--line-filter={line_filter}", str(ROOT / source)],
                cwd=ROOT, capture_output=True, text=True,
            )
            if done.returncode != 0:
                print(done.stdout + done.stderr, end="", flush=True)
            return done.returncode != 0

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            failed = sum(pool.map(one, sources))
    checked = len(sources) - len(late)
    print(f"tidy: {checked} of {len(sources)} changed files checked, findings in {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""units.py BUILD [--files REGEX] [--jobs N] [--compiler C++]: whether each source file compiles alone.

A unity build puts several files into one unit, where a file may use what only the file before it
includes.  This takes the command lines of the build folder BUILD (compile_commands.json), leaves out
precompiled headers, and has the compiler check the syntax of each file by itself (-fsyntax-only).
Generated headers must exist: build first.

Prints the compiler's errors; exits with 1 where a file does not compile.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GCC_ONLY = {"-Wno-restrict", "-Wno-stringop-overflow", "-Wno-stringop-overread"}
UNITY_MEMBER = re.compile(r'^#include "(.+)"$', re.MULTILINE)


def members(file):
    """The source files of a unit: those of a unity batch, or the file itself."""
    path = Path(file)
    if path.parent.name != "Unity":
        return [file]
    return UNITY_MEMBER.findall(path.read_text()) if path.exists() else []


def arguments(command, file):
    """The command's options, without its outputs, its source file and precompiled headers."""
    words = shlex.split(command)
    while not os.path.basename(words[0]).startswith(("c++", "g++", "gcc", "clang")):
        words.pop(0)  # ccache
    kept, skip = words[:1], 0
    for index, word in enumerate(words[1:], 1):
        if skip:
            skip -= 1
        elif word in ("-o", "-MT", "-MF", "-Xclang"):
            skip = 1
        elif word == "-include" and "cmake_pch" in words[index + 1]:
            skip = 1
        elif word in ("-c", "-MD", "-fpch-preprocess", "-Winvalid-pch", file):
            pass
        else:
            kept.append(word)
    return kept


def commands(build, pattern=""):
    """A command for each source file, by its path.  A file of two targets is checked once."""
    entries = json.loads((build / "compile_commands.json").read_text())
    found = {}
    for entry in entries:
        for file in members(entry["file"]):
            if re.search(pattern, file) and not file.startswith(str(build)):
                kept = arguments(entry["command"], entry["file"])
                found.setdefault(file, (kept, entry["directory"]))
    return found


def for_clang(words, compiler="clang++"):
    """The same command line for clang, without what only gcc knows."""
    kept, skip = [compiler, "-fconstexpr-steps=500000000"], False
    for word in words[1:]:
        if skip or word in GCC_ONLY:
            skip = False
        elif word == "--param":
            skip = True
        else:
            kept.append(word)
    return kept


def check(file, words, directory):
    """What the compiler prints of a file that does not compile; empty where it does."""
    done = subprocess.run(words + ["-fsyntax-only", file], cwd=directory, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--compiler", help="another compiler than the build's, such as clang++")
    parser.add_argument("--progress", action="store_true", help="print each file's name")
    parser.add_argument("--files", default="", metavar="REGEX", help="check only paths that match")
    flags = parser.parse_args()
    build = flags.build.resolve()
    found = commands(build, flags.files)
    if not found:
        print(f"units: no file of {build}/compile_commands.json matches '{flags.files}'", file=sys.stderr)
        return 1

    def one(file):
        words, directory = found[file]
        if flags.compiler and "clang" in flags.compiler:
            words = for_clang(words, flags.compiler)
        elif flags.compiler:
            words = [flags.compiler] + words[1:]
        said = check(file, words, directory)
        if flags.progress or said:
            print(f"{'FAILED' if said else 'ok'} {file}\n{said}", end="", flush=True)
        return bool(said)

    with ThreadPoolExecutor(flags.jobs) as pool:
        failed = sum(pool.map(one, sorted(found)))
    print(f"units: {len(found)} files, {failed} do not compile alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes testdata/assembled.txt: the words of the instructions that the tests in this folder use.

Looks for raw strings R"(...)" in *_test.cc and assembles their lines with llvm-mc of LLVM 16 or
newer: assemble_tests.py [PATH_OF_LLVM_MC].  The tests need the file alone, not LLVM.
"""
import pathlib
import re
import subprocess
import sys

folder = pathlib.Path(__file__).resolve().parent
assembler = sys.argv[1] if len(sys.argv) > 1 else "llvm-mc"
lines = set()
for source in sorted(folder.glob("*_test.cc")):
    for text in re.findall(r'R"\((.*?)\)"', source.read_text(), re.DOTALL):
        lines.update(filter(None, map(str.strip, text.splitlines())))


def assemble(line, lanes):
    """The words, or the assembler's message."""
    run = subprocess.run(
        [assembler, "--arch=amdgcn", "--mcpu=gfx1150", "--show-encoding",
         f"--mattr=+wavefrontsize{lanes},-wavefrontsize{96 - lanes}"],
        input=line + "\n", capture_output=True, text=True, check=False)
    found = re.search(r"encoding: \[(.*?)\]", run.stdout)
    if run.returncode != 0 or found is None:
        return None, run.stderr or run.stdout
    data = [int(byte, 16) for byte in found.group(1).split(",")]
    return [int.from_bytes(bytes(data[at:at + 4]), "little") for at in range(0, len(data), 4)], ""


result = []
for line in sorted(lines):
    # Matrices of waves of 64 have other registers.
    words, message = assemble(line, 32)
    if words is None:
        words, _ = assemble(line, 64)
    if words is None:
        sys.exit(f"{line}: {message}")
    result.append(f"{line:<58} ; {' '.join(f'{word:08x}' for word in words)}")
head = ("# Instructions of the tests and their words, by LLVM's assembler for gfx1150.\n"
        "# assemble_tests.py writes this file.\n")
(folder / "testdata" / "assembled.txt").write_text(head + "\n".join(result) + "\n")
print(f"{len(result)} instructions")

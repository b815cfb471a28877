#!/usr/bin/env python3
"""Writes testdata/compiled.txt: each form of instruction that the compiler makes of the kernels.

    kernel_report --chip CHIP --all --assembly '[' | sample_compiled.py

A form is an operation with its kinds of operands; numbers of registers, constants and targets of
branches do not make another one.
"""
import pathlib
import re
import sys

path = pathlib.Path(__file__).resolve().parent / "testdata" / "compiled.txt"
forms = {}
for source in [path.read_text().splitlines() if path.exists() else [], sys.stdin]:
    for line in source:
        text, mark, words = line.rstrip("\n").partition(" ; ")
        text = text.strip()
        if not mark or not re.match(r"[a-z]", text):
            continue
        words = words.strip()
        form = re.sub(r"\b(BB|0x[0-9a-f]+|\d+)\w*", "#", re.sub(r"\b[vs]\d+", "r", text))
        form = re.sub(r"[vs]\[\d+:\d+\]", "r[]", form)
        if text.startswith(("s_delay_alu", "s_waitcnt", "s_clause", "s_nop")):
            form = text.split()[0]
        forms.setdefault((form, len(words.split())), f"{text:<58} ; {words}")
head = "# Forms of instructions that RADV of Mesa 25.0 compiles: sample_compiled.py writes this file.\n"
path.write_text(head + "\n".join(sorted(forms.values())) + "\n")
print(f"{len(forms)} forms")

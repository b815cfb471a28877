#!/usr/bin/env python3
"""make.py DECLARATION OPERATOR [--mlir FILE] [--json FILE]: the array of an operator.
make.py DECLARATION --all FOLDER: the arrays of all operators, as FOLDER/OPERATOR.mlir and .json.
make.py DECLARATION --list: the operators, one a line: name, source of the cores' program, object file, macros.

DECLARATION: what `tandem-npu-package declare npu1|npu4` printed.  Ends with 1 where the design asks for more than
a tile has, or does not reach what the operator's control code reaches.
"""

import argparse
import json
import sys

import attention
import gemm
import rows
from model import SHIM_ROW, as_json, as_mlir

DESIGNS = {"attention": attention.design, "gemm": gemm.design, "rows": rows.design}


def make(declaration, operator):
    """The operator's array, checked against its declaration."""
    array = DESIGNS[operator["entry"]["control"]](declaration, operator)
    array.check()
    check_reach(array, operator)
    return array


def check_reach(array, operator):
    """Raises ValueError: control code and design use different channels of shim tiles, or other cores."""
    feeds = {(p.tile.column, "to_tile", p.channel) for p, _ in array.flows if p.tile.row == SHIM_ROW}
    feeds |= {(p.tile.column, "from_tile", p.channel) for _, p in array.flows if p.tile.row == SHIM_ROW}
    wanted = {(s["column"], s["direction"], s["channel"]) for s in operator["shim"]}
    if feeds != wanted:
        raise ValueError(f"{array.name}: shim channels differ from control code's: {sorted(feeds ^ wanted)}")
    cores = {(c.tile.column, c.tile.row) for c in array.cores}
    wanted = {(c["column"], c["row"]) for c in operator["cores"]}
    if cores != wanted:
        raise ValueError(f"{array.name}: cores differ from control code's: {sorted(cores ^ wanted)}")


def as_json_text(array):
    return json.dumps(as_json(array))


def write(array, path, form):
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.write(form(array))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("declaration")
    parser.add_argument("operator", nargs="?")
    parser.add_argument("--all")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--mlir")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    with open(arguments.declaration, encoding="utf-8") as file:
        declaration = json.load(file)
    if arguments.list:
        for operator in declaration["operators"]:
            program = operator["program"]
            print(operator["entry"]["name"], program["source"], program["object"], *program["macros"])
        return 0
    found = [o for o in declaration["operators"] if arguments.all or o["entry"]["name"] == arguments.operator]
    if not found:
        print(f"make.py: no operator {arguments.operator} in {arguments.declaration}", file=sys.stderr)
        return 1
    try:
        for operator in found:
            array = make(declaration, operator)
            write(array, arguments.all and f"{arguments.all}/{array.name}.mlir" or arguments.mlir, as_mlir)
            write(array, arguments.all and f"{arguments.all}/{array.name}.json" or arguments.json, as_json_text)
    except ValueError as error:
        print(f"make.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

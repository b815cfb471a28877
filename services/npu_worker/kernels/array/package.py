#!/usr/bin/env python3
"""package.py DECLARATION XCLBIN --operators NAME... --source S --revision R --toolchain T

Prints package.json of a merged xclbin: the operators' declarations, with the memory groups that the xclbin connects
their arguments to.  Ends with 1 where a kernel or an argument is missing, or for other columns.
"""

import argparse
import json
import os
import sys

import xclbin


def entry_of(operator, kernels, columns, arguments):
    """An operator's entry."""
    entry = operator["entry"]
    groups = kernels.get(entry["kernel"])
    if groups is None:
        raise xclbin.XclbinError(f"no kernel {entry['kernel']}, it has {', '.join(kernels)}")
    if columns != entry["columns"]:
        raise xclbin.XclbinError(f"it is for {columns} columns, operator {entry['name']} has {entry['columns']}")
    for argument in entry["arguments"]:
        if argument["index"] not in groups:
            raise xclbin.XclbinError(
                f"kernel {entry['kernel']} has no argument {argument['index']} ({argument['name']})"
            )
        argument["group"] = groups[argument["index"]]
    entry["xclbin"] = os.path.basename(arguments.xclbin)
    entry["provenance"] = {
        "source": arguments.source,
        "revision": arguments.revision,
        "toolchain": arguments.toolchain,
    }
    return entry


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("declaration")
    parser.add_argument("xclbin")
    parser.add_argument("--operators", nargs="+", required=True)
    for name in ("source", "revision", "toolchain"):
        parser.add_argument("--" + name, required=True)
    arguments = parser.parse_args()
    with open(arguments.declaration, encoding="utf-8") as file:
        declaration = json.load(file)
    try:
        kernels, columns = xclbin.read(arguments.xclbin)
        operators = [
            entry_of(operator, kernels, columns, arguments)
            for operator in declaration["operators"]
            if operator["entry"]["name"] in arguments.operators
        ]
    except (xclbin.XclbinError, OSError) as error:
        print(f"package.py: {arguments.xclbin}: {error}", file=sys.stderr)
        return 1
    package = {"format": "tandem-npu-package", "version": 3, "emulated": False, "operators": operators}
    print(json.dumps(package, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

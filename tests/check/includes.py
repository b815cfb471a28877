#!/usr/bin/env python3
"""includes.py [ROOT]: the includes of services/ against the table include_layers.txt.

Prints a line for each include that goes against the table; exits with 1 if there is one.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"services/([^"]+)"')
TEST = re.compile(r"(_test\.|_for_test|_test_|test_support|fixture|/testing/)")


def read_table(path):
    """The rank of each area, the lowest first, and the (service, area) pairs that `use` lines allow."""
    ranks, uses = {}, set()
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"use (\S+) -> (\S+)", line)
        if match:
            uses.add((match[1], match[2]))
        else:
            ranks[line] = len(ranks)
    return ranks, uses


def area_of(path, ranks):
    """The longest area that holds `path`, a path below services/; None: the table has none."""
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        area = "/".join(parts[:length])
        if area in ranks:
            return area
    return None


def wrong_way(area, target, ranks, uses):
    own, other = area.split("/")[0], target.split("/")[0]
    if other not in (own, "common") and (own, target) not in uses:
        return f"{own} includes {other}: services do not include one another"
    if ranks[target] > ranks[area]:
        return f"{area} includes {target}, which is in a higher layer"
    return None


def check(root, table=HERE / "include_layers.txt"):
    """The faults of the tree at `root`, one line each."""
    ranks, uses = read_table(table)
    faults = []
    for path in sorted((root / "services").rglob("*")):
        name = path.relative_to(root / "services").as_posix()
        if path.suffix not in (".h", ".cc") or TEST.search(name):
            continue
        area = area_of(name, ranks)
        if area is None:
            faults.append(f"services/{name}: its folder is not in {table.name}")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match or TEST.search(match[1]):
                continue
            target = area_of(match[1], ranks)
            if target is None:
                faults.append(f"services/{name}:{number}: {match[1]} is in no area of {table.name}")
                continue
            fault = wrong_way(area, target, ranks, uses)
            if fault:
                faults.append(f"services/{name}:{number}: {fault}")
    return faults


def main():
    faults = check(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1])
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

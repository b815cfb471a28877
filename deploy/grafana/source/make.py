#!/usr/bin/env python3
"""Writes the dashboards as Grafana reads them.

    deploy/grafana/source/make.py [FOLDER]      default: deploy/grafana/dashboards
"""

import importlib
import json
import pathlib
import sys

NAMES = ("overview", "devices", "requests", "memory")


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "dashboards"
    sys.path.insert(0, str(here))
    for name in NAMES:
        text = json.dumps(importlib.import_module(name).DASHBOARD, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n")


main()

"""Where things are."""

import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"
MODEL = ROOT / "models/demo/demo.Q8_0.gguf"


def find(program):
    """The installed program, or the one that scripts/fetch-prometheus has fetched; None without either."""
    fetched = ROOT / ".deps/prometheus/usr/bin" / program
    return shutil.which(program) or (str(fetched) if fetched.exists() else None)


PROMTOOL = find("promtool")
SERVER = find("prometheus")

"""Where things are, and how things are waited for."""

import pathlib
import random
import shutil
import socket
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"
MODEL = ROOT / "models/demo/demo.Q8_0.gguf"


def find(program):
    """The installed program, or the one that scripts/fetch-prometheus has fetched; None without either."""
    fetched = ROOT / ".deps/prometheus/usr/bin" / program
    return shutil.which(program) or (str(fetched) if fetched.exists() else None)


PROMTOOL = find("promtool")
SERVER = find("prometheus")


def free_ports(count):
    """Ports of 127.0.0.1 that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def free_run(count):
    """The first of so many ports in a row that nobody has now."""
    for _ in range(100):
        first = random.randrange(20000, 30000)  # below the ports that clients get
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
            return first
        except OSError:
            continue
    raise OSError(f"no {count} free ports in a row")


def wait_for(what, done, seconds=60):
    """The first true result of `done`, which may fail with OSError until then."""
    until = time.monotonic() + seconds
    while True:
        try:
            result = done()
            if result:
                return result
            problem = "not yet"
        except OSError as error:
            problem = error
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: {problem} after {seconds} s")
        time.sleep(0.05)

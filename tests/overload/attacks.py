#!/usr/bin/env python3
"""What a client can do to a gateway that it reaches: attacks.py NAME --http HOST:PORT --grpc HOST:PORT|unix:PATH

Prints a line when the attack is under way and goes on until SIGTERM or for --seconds.  Loopback only.  `--list` names them.
"""

import argparse
import os
import pathlib
import resource
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import attacks_grpc
import attacks_http

ATTACKS = attacks_http.ATTACKS | attacks_grpc.ATTACKS


def on_this_machine(target):
    """Refuses every other machine: these are attacks."""
    if not target.startswith("unix:"):
        host = target.rsplit(":", 1)[0]
        if not socket.gethostbyname(host).startswith("127."):
            raise argparse.ArgumentTypeError(f"{target} is not on loopback")
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=sorted(ATTACKS))
    parser.add_argument("--list", action="store_true", help="name the attacks, and what they do")
    for target in ("http", "grpc", "metrics"):
        parser.add_argument(f"--{target}", type=on_this_machine, help="HOST:PORT")
    parser.add_argument("--key", help="API key")
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    if options.list or not options.name:
        for name, attack in ATTACKS.items():
            print(f"{name:20} {attack.__doc__.splitlines()[0]}")
        return
    # The attack may take descriptors and processor time; others' share of the processors is not its aim.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(19)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    under_way = threading.Event()
    threading.Thread(target=ATTACKS[options.name], args=(options, under_way.set), daemon=True).start()
    if not under_way.wait(30):
        sys.exit(f"{options.name}: not under way after 30 s")
    print("under way", flush=True)
    time.sleep(options.seconds)
    os._exit(0)


if __name__ == "__main__":
    main()

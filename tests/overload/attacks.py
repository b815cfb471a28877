#!/usr/bin/env python3
"""What a client can do to a gateway that it reaches: attacks.py NAME --http HOST:PORT --grpc HOST:PORT|unix:PATH

Prints a line when it has made what it sends, another when the attack is under way, and goes on until SIGTERM or for
--seconds.  Loopback only.  `--list` names the attacks.
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
    parser.add_argument("--seconds", type=float, default=600, help="how long an attack lasts")
    parser.add_argument("--turns", action="store_true",
                        help="begin at a line of standard input, end at the next one, and so on until the input ends")
    options = parser.parse_args()
    if options.list or not options.name:
        for name, attack in ATTACKS.items():
            print(f"{name:20} {attack.__doc__.splitlines()[0]}")
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    attack = ATTACKS[options.name](options)
    print("ready", flush=True)
    if not options.turns:
        go_on(options, attack)
    while sys.stdin.readline():
        # Each turn is a process of its own, which has what it sends already.
        turn = os.fork()
        if turn == 0:
            go_on(options, attack)
        sys.stdin.readline()
        os.kill(turn, signal.SIGKILL)
        os.waitpid(turn, 0)
        print("over", flush=True)


def go_on(options, attack):
    """Attacks for --seconds and ends the process."""
    os.nice(19)  # others' share of the processors is not its aim
    under_way = threading.Event()
    threading.Thread(target=attack, args=(under_way.set,), daemon=True).start()
    if not under_way.wait(30):
        print("not under way after 30 s", flush=True)
        os._exit(1)
    print("under way", flush=True)
    time.sleep(options.seconds)
    os._exit(0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs Tandem and llama.cpp on the same GGUF file in turns, and prints how they compare.

    tests/bench/against_llama.py --model FILE.gguf \\
        --llama-bench 'llama-bench' --llama-batched-bench 'llama-batched-bench'

The commands may begin with whatever they need: a loader with its library path, a wrapper, VARIABLE=value.
Each pair is one run of each program, all tests in it; who goes first alternates. A ratio is Tandem's speed
over llama.cpp's: of a test, the geometric mean over the pairs, with the lowest and the highest. Prompts and
decoding of one sequence come from llama-bench; those of several at a time from llama-batched-bench, if given,
whose sequences begin with the same number of positions as ours.

The two do not quite the same work: llama.cpp's tools call the library directly, Tandem answers
through its server, tokens streamed, sampling and hops included.
"""
import argparse
import json
import math
import os
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def numbers(text):
    return [int(part) for part in text.split(",") if part != ""]


def run(command, arguments, timeout):
    """Standard output of the command; ends the program with what went wrong otherwise."""
    words = shlex.split(command)
    environment = dict(os.environ)
    while words and "=" in words[0].split("/")[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    line = words + [str(argument) for argument in arguments]
    try:
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"{shlex.join(line)}: {error}")
    if done.returncode != 0:
        sys.exit(f"{shlex.join(line)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def name_of(prompt, tokens, depth, batch):
    """As `tandem bench` names its tests."""
    name = f"pp{prompt}" if prompt else f"tg{tokens}"
    if depth:
        name += f"@d{depth}"
    if batch > 1:
        name += f" b{batch}"
    return name


def parse_tandem(text):
    """Test -> tokens a second, of `tandem bench --json`."""
    return {test["test"]: test["tokens_per_second"] for test in json.loads(text)["tests"]}


def parse_llama_bench(text):
    """Test -> tokens a second, of `llama-bench -o json`."""
    return {
        name_of(test["n_prompt"], test["n_gen"], test.get("n_depth", 0), 1): test["avg_ts"]
        for test in json.loads(text)
    }


def parse_batched(text):
    """(pp, tg, pl) -> (speed of prompts, speed of decoding), of `llama-batched-bench`'s JSON lines."""
    found = {}
    for line in text.splitlines():
        if line.startswith("{"):
            test = json.loads(line)
            found[test["pp"], test["tg"], test["pl"]] = (test["speed_pp"], test["speed_tg"])
    return found


def run_tandem(options):
    arguments = ["bench", "--model", options.model, "--npu", "off", "--json",
                 "--repetitions", options.repetitions,
                 "--prompt", ",".join(map(str, options.prompt)) or "0",
                 "--tokens", ",".join(map(str, options.tokens)) or "0",
                 "--batch", ",".join(map(str, options.batch)),
                 "--depth", ",".join(map(str, options.depth))]
    return parse_tandem(run(options.tandem, arguments + shlex.split(options.tandem_args),
                            options.timeout))


def run_batched(options, batch, prompt, tokens):
    arguments = ["-m", options.model, "-npp", prompt, "-ntg", tokens, "-npl", batch,
                 "-c", batch * (prompt + tokens) + 64, "--output-format", "jsonl"]
    text = run(options.llama_batched_bench, arguments + shlex.split(options.llama_args),
               options.timeout)
    found = parse_batched(text)
    if (prompt, tokens, batch) not in found:
        sys.exit(f"{options.llama_batched_bench}: no line for {batch} sequences of {prompt} + {tokens} "
                 f"tokens in what it printed: {text[:500]}")
    return found[prompt, tokens, batch]


def run_llama(options):
    speeds = {}
    if 1 in options.batch:
        common = ["-m", options.model, "-r", options.repetitions, "-o", "json"]
        common += shlex.split(options.llama_args)
        prompts = ["-p", ",".join(map(str, options.prompt)) or "0"]
        tokens = ["-n", ",".join(map(str, options.tokens)) or "0"]
        if options.depth == [0]:
            calls = [prompts + tokens]
        else:  # it would run prompts at every depth too
            calls = [prompts + ["-n", "0"],
                     ["-p", "0"] + tokens + ["-d", ",".join(map(str, options.depth))]]
        for call in calls:
            text = run(options.llama_bench, common + call, options.timeout)
            speeds.update(parse_llama_bench(text))
    if not options.llama_batched_bench:
        return speeds
    for batch in options.batch:
        if batch == 1:
            continue
        for prompt in options.prompt:
            speeds[name_of(prompt, 0, 0, batch)] = run_batched(options, batch, prompt, 1)[0]
        for tokens in options.tokens:
            for depth in options.depth:
                speed = run_batched(options, batch, max(depth, 1), tokens)[1]
                speeds[name_of(0, tokens, depth, batch)] = speed
    return speeds


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def summarise(pairs):
    """Rows (test, llama.cpp's mean, Tandem's mean, ratio, lowest, highest) of the tests both have."""
    rows = []
    for test in pairs[0][0]:
        both = [(ours[test], theirs[test]) for ours, theirs in pairs
                if ours.get(test, 0) > 0 and theirs.get(test, 0) > 0]
        if len(both) != len(pairs):
            continue
        ratios = [ours / theirs for ours, theirs in both]
        rows.append((test, sum(theirs for _, theirs in both) / len(both),
                     sum(ours for ours, _ in both) / len(both), geometric_mean(ratios),
                     min(ratios), max(ratios)))
    return rows


def as_markdown(model, rows):
    lines = [f"{model}, tokens a second", "",
             "| test | llama.cpp | Tandem | ratio | lowest | highest |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for test, theirs, ours, ratio, low, high in rows:
        lines.append(f"| {test} | {theirs:.2f} | {ours:.2f} | {ratio:.2f} | {low:.2f} | {high:.2f} |")
    return "\n".join(lines)


def parse_flags(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--tandem", default=os.path.join(ROOT, "build/release/bin/tandem"),
                        help="command (default: %(default)s)")
    parser.add_argument("--llama-bench", default="llama-bench", help="command (default: %(default)s)")
    parser.add_argument("--llama-batched-bench", default="",
                        help="command; without it several sequences at a time are not compared")
    parser.add_argument("--llama-args", default="-ngl 99", help="for both tools (default: %(default)s)")
    parser.add_argument("--tandem-args", default="", help="for tandem bench: --gpu-device ...")
    parser.add_argument("--prompt", type=numbers, default=[512], help="tokens of prompts (512)")
    parser.add_argument("--tokens", type=numbers, default=[128], help="tokens made (128)")
    parser.add_argument("--batch", type=numbers, default=[1], help="sequences at a time (1)")
    parser.add_argument("--depth", type=numbers, default=[0], help="positions before, decoding (0)")
    parser.add_argument("--pairs", type=int, default=3, help="(3)")
    parser.add_argument("--repetitions", type=int, default=1, help="within a run (1)")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for a run (3600)")
    parser.add_argument("--json", action="store_true", help="print JSON, every pair's speeds in it")
    options = parser.parse_args(arguments)
    if options.pairs < 1 or not options.batch:
        parser.error("--pairs and --batch: at least one")
    return options


def main(arguments):
    options = parse_flags(arguments)
    pairs = []
    for pair in range(options.pairs):
        runners = [run_tandem, run_llama]
        if pair % 2 == 1:
            runners.reverse()
        speeds = {}
        for runner in runners:
            print(f"pair {pair + 1} of {options.pairs}: {runner.__name__[4:]}", file=sys.stderr)
            speeds[runner] = runner(options)
        pairs.append((speeds[run_tandem], speeds[run_llama]))
    rows = summarise(pairs)
    if not rows:
        sys.exit("no test that both have run")
    if options.json:
        names = ("test", "llama", "tandem", "ratio", "lowest", "highest")
        print(json.dumps({"model": options.model, "tests": [dict(zip(names, row)) for row in rows],
                          "pairs": [{"tandem": ours, "llama": theirs} for ours, theirs in pairs]},
                         indent=2))
    else:
        print(as_markdown(os.path.basename(options.model), rows))


if __name__ == "__main__":
    main(sys.argv[1:])

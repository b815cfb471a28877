#!/usr/bin/python3
"""planted_bugs.py [--check] [--seeds N] [NAME...]: whether tandem-simulate finds bugs that are planted.

Copies the tree to build/planted, plants one bug at a time, builds tandem-simulate there and runs it until a
seed fails.  Prints the seed for each; exits with 1 if a bug is not found.  --check: only that the places where
bugs are planted are still there.
"""

import argparse
import filecmp
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build/planted"

# Name, file, the text there, the text planted in its place.
BUGS = [
    (
        "a block is freed twice",
        "services/common/kv/sequence_blocks.cc",
        "if (table.back() != kNoBlock) pools_->pools[group].Free(table.back());",
        "if (table.back() != kNoBlock) pools_->pools[group].Free(table.back());\n"
        "      if (table.back() % 16 == 7) pools_->pools[group].Free(table.back());",
    ),
    (
        "the epoch of an answer is not checked",
        "services/common/rpc/worker_client.cc",
        "response.epoch() != call.epoch || ",
        "",
    ),
    (
        "the step of an answer is not checked",
        "services/common/rpc/worker_client.cc",
        "response.step_id() != call.step_id ||",
        "",
    ),
    (
        "a token is appended twice",
        "services/gateway/engine/token_stream.cc",
        "  MoveAppend(update.tokens, unread_.tokens);",
        "  if (notifying_ && !update.tokens.empty()) unread_.tokens.push_back(update.tokens.front());\n"
        "  MoveAppend(update.tokens, unread_.tokens);",
    ),
    (
        "the queue has no bound",
        "services/gateway/scheduler/queue_places.cc",
        "if (taken_.requests < max_requests_) return true;",
        "return true;",
    ),
    (
        "the KV cache of a lost worker counts as computed",
        "services/gateway/scheduler/scheduler.cc",
        "sequence->num_computed = sequence->furthest = sequence->safe_until = 0;",
        "sequence->furthest = sequence->safe_until = 0;\n"
        "    if (computed < 8) sequence->num_computed = 0;",
    ),
    (
        "a block of a sliding window is freed one too early",
        "services/common/kv/sequence_blocks.cc",
        "{FirstWindowBlock(first_position, pools_->sliding_window, pools_->block_tokens),",
        "{FirstWindowBlock(first_position + pools_->block_tokens, pools_->sliding_window, pools_->block_tokens),",
    ),
    (
        "the prefix cache takes a block for that of another prefix",
        "services/common/kv/sequence_blocks.cc",
        "pools_->Publish(i == 0 ? PrefixTree::Root(scope_) : global[i - 1],",
        "pools_->Publish(i < 2 ? PrefixTree::Root(scope_) : global[i - 1],",
    ),
    (
        "a preempted sequence goes on where it was",
        "services/gateway/scheduler/scheduler_plan.cc",
        "  victim.num_computed = 0;\n",
        "  if (victim.num_computed < 32) victim.num_computed = 0;\n",
    ),
    (
        "a lease is never given back",
        "services/gateway/executor/leased_model.cc",
        "  lease_ = *std::move(lease);",
        "  lease_.release();\n  lease_ = *std::move(lease);",
    ),
    (
        "the row after a rejected guess counts",
        "services/gateway/scheduler/scheduler_outcome.cc",
        "  sequence.void_step = sequence.last_served;\n  sequence.void_position = position;",
        "  sequence.void_position = position;",
    ),
    (
        "answers of steps that are under way at once are mixed up",
        "services/gateway/executor/cluster_executor_step.cc",
        "  Step& step = *unanswered_[worker].front();\n  unanswered_[worker].pop_front();",
        "  Step& step = *unanswered_[worker].back();\n  unanswered_[worker].pop_back();",
    ),
    (
        "a request loses a token on its way to another replica",
        "services/gateway/scheduler/scheduler_hand_over.cc",
        "      .answer = {answer.begin(), answer.end()},",
        "      .answer = {answer.begin(), answer.end() - (answer.size() > 3 ? 1 : 0)},",
    ),
    (
        "answers to two copies of KV have the same number",
        "services/gateway/executor/cluster_executor_copy.cc",
        "request_.set_step_id(kFirstCopy + num_copies_);",
        "request_.set_step_id(kFirstCopy);",
    ),
    (
        "handed-over KV is found before it is there",
        "services/gateway/engine/kv_receiver.cc",
        "    incoming.num_blocks += count;",
        "    incoming.num_blocks += count;\n    scheduler_.imports().Publish(prefix.request);",
    ),
    (
        "a sequence goes elsewhere while a step has it",
        "services/gateway/scheduler/scheduler_hand_over.cc",
        "return std::ranges::find(step->rows, id, &ScheduledRows::sequence) != step->rows.end();",
        "return id == 0 && step->rows.empty();",
    ),
]


def run(command, cwd=None):
    return subprocess.run(command, cwd=cwd or COPY, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def copy_tree():
    """The files that git knows into COPY, those that differ with a new time, so that they are compiled again."""
    files = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT).stdout
    for name in filter(None, files.split("\0")):
        source, target = ROOT / name, COPY / name
        if not source.is_file() or (target.exists() and filecmp.cmp(source, target, shallow=False)):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


def find(seeds):
    """The first line that tandem-simulate prints of a seed that fails; None: no seed does."""
    built = run(["scripts/build", "release", "tandem-simulate"])
    if built.returncode:
        sys.exit(f"planted_bugs: it does not build:\n{built.stdout[-4000:]}")
    result = run(["build/release/bin/tandem-simulate", "--stop", "--seeds", str(seeds)])
    return next((line for line in result.stdout.splitlines() if re.match(r"seed \d+: ", line)), None)


def check(bugs):
    """The names of the bugs whose place is not there exactly once."""
    return [name for name, file, old, _ in bugs if (ROOT / file).read_text(encoding="utf-8").count(old) != 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of bugs; default: all")
    parser.add_argument("--check", action="store_true", help="only that their places are there")
    parser.add_argument("--seeds", type=int, default=2000, help="that a bug has to be found in")
    flags = parser.parse_args()
    for name in flags.names:
        if name not in [bug[0] for bug in BUGS]:
            parser.error(f"no bug is named '{name}'")
    bugs = [bug for bug in BUGS if not flags.names or bug[0] in flags.names]
    misplaced = check(bugs)
    if misplaced:
        sys.exit("planted_bugs: no place any more for: " + "; ".join(misplaced))
    if flags.check:
        return 0
    copy_tree()
    if found := find(flags.seeds):
        sys.exit(f"planted_bugs: without a planted bug {found}")
    missed = 0
    for name, file, old, new in bugs:
        path = COPY / file
        right = path.read_text(encoding="utf-8")
        path.write_text(right.replace(old, new), encoding="utf-8")
        try:
            found = find(flags.seeds)
        finally:
            path.write_text(right, encoding="utf-8")
        print(f"{name}: {found or 'NOT FOUND'}", flush=True)
        missed += found is None
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

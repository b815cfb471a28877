#!/usr/bin/env python3
"""against_llama.py against programs that print what the real ones do."""
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

# Prints fixed speeds and notes that it was called.
FAKE = """#!/bin/sh
echo "$0 $*" >> "$LOG"
case "$*" in
  *jsonl*) echo 'main: a line of another kind'
           echo '{"pp": 1, "tg": 16, "pl": 4, "speed_pp": 9.0, "speed_tg": 50.0}'
           echo '{"pp": 64, "tg": 1, "pl": 4, "speed_pp": 80.0, "speed_tg": 1.0}' ;;
  *"-p 64 -n 16"*) echo '[{"n_prompt": 64, "n_gen": 0, "avg_ts": 100.0},
                          {"n_prompt": 0, "n_gen": 16, "avg_ts": 10.0}]' ;;
  *"-p 64"*) echo '[{"n_prompt": 64, "n_gen": 0, "n_depth": 0, "avg_ts": 100.0}]' ;;
  *"-n 16"*) echo '[{"n_prompt": 0, "n_gen": 16, "n_depth": 0, "avg_ts": 10.0},
                    {"n_prompt": 0, "n_gen": 16, "n_depth": 32, "avg_ts": 8.0}]' ;;
  bench*) cat <<END
{"tests": [{"test": "pp64", "tokens_per_second": 400.0}, {"test": "tg16", "tokens_per_second": 45.0},
 {"test": "tg16@d32", "tokens_per_second": 4.0}, {"test": "pp64 b4", "tokens_per_second": 80.0},
 {"test": "tg16 b4", "tokens_per_second": 100.0}]}
END
  ;;
  *) echo "unexpected: $*" >&2; exit 3 ;;
esac
"""


class AgainstLlamaTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.program = os.path.join(self.folder.name, "fake")
        with open(self.program, "w") as file:
            file.write(FAKE)
        os.chmod(self.program, os.stat(self.program).st_mode | stat.S_IXUSR)
        self.log = os.path.join(self.folder.name, "log")

    def tearDown(self):
        self.folder.cleanup()

    def run_script(self, *arguments):
        line = [sys.executable, os.path.join(HERE, "against_llama.py"), "--model", "m.gguf",
                "--tandem", f"LOG={self.log} {self.program}",
                "--llama-bench", f"LOG={self.log} {self.program}"]
        return subprocess.run(line + list(arguments), capture_output=True, text=True)

    def test_ratios_of_every_test_and_turns_that_alternate(self):
        done = self.run_script("--prompt", "64", "--tokens", "16", "--depth", "0,32", "--batch", "1,4",
                               "--pairs", "2", "--llama-batched-bench", f"LOG={self.log} {self.program}",
                               "--json")
        # The fake has no line for a batch at depth 32.
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no line for 4 sequences of 32 + 16 tokens", done.stderr)

        os.remove(self.log)
        done = self.run_script("--prompt", "64", "--tokens", "16", "--batch", "1,4", "--pairs", "2",
                               "--llama-batched-bench", f"LOG={self.log} {self.program}", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        ratios = {test["test"]: test["ratio"] for test in json.loads(done.stdout)["tests"]}
        self.assertAlmostEqual(ratios["pp64"], 4)
        self.assertAlmostEqual(ratios["tg16"], 4.5)
        self.assertAlmostEqual(ratios["pp64 b4"], 1)
        self.assertAlmostEqual(ratios["tg16 b4"], 2)
        with open(self.log) as file:
            ours = ["bench" == line.split()[1] for line in file]
        self.assertEqual(ours, [True] + 6 * [False] + [True], "tandem first, then last")

    def test_without_batched_bench_only_single_sequences_are_compared(self):
        done = self.run_script("--prompt", "64", "--tokens", "16", "--depth", "0,32", "--batch", "1,4",
                               "--pairs", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| pp64 | 100.00 | 400.00 | 4.00 | 4.00 | 4.00 |", done.stdout)
        self.assertIn("| tg16@d32 | 8.00 | 4.00 | 0.50 | 0.50 | 0.50 |", done.stdout)
        self.assertNotIn("b4", done.stdout)

    def test_a_program_that_fails_is_named(self):
        done = self.run_script("--prompt", "9")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("-p 9", done.stderr)
        self.assertIn("exit status 3", done.stderr)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""units_test.py: a file that needs its neighbour in a unity batch is found, before the neighbour is deleted."""

import json
import tempfile
import unittest
from pathlib import Path

import units


class UnitsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("first.cc", "#include <string>\nstd::string First() { return {}; }\n")
        self.write("second.cc", "std::string Second() { return {}; }\n")
        self.batch = self.write(
            "build/Unity/unity_0_cxx.cxx",
            f'#include "{self.root}/first.cc"\n#include "{self.root}/second.cc"\n')
        self.write("build/compile_commands.json", json.dumps([{
            "directory": str(self.root), "file": str(self.batch),
            "command": f"/usr/bin/c++ -std=c++20 -o unit.o -c {self.batch}"}]))

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def faults_of(self, name):
        words, directory = units.commands(self.root / "build")[str(self.root / name)]
        return units.check(str(self.root / name), words, directory)

    def test_the_batch_compiles(self):
        command = ["/usr/bin/c++", "-std=c++20"]
        self.assertEqual(units.check(str(self.batch), command, str(self.root)), "")

    def test_a_file_that_needs_the_one_before_it_is_found(self):
        self.assertEqual(self.faults_of("first.cc"), "")
        self.assertIn("second.cc", self.faults_of("second.cc"))

    def test_a_file_that_includes_what_it_uses_passes(self):
        self.write("second.cc", "#include <string>\nstd::string Second() { return {}; }\n")
        self.assertEqual(self.faults_of("second.cc"), "")


if __name__ == "__main__":
    unittest.main()

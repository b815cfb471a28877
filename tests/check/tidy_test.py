#!/usr/bin/env python3
"""tidy_test.py: which lines and files clang-tidy looks at, and how units of a unity build are found."""

import json
import tempfile
import unittest
from pathlib import Path

import tidy
import units

DIFF = """diff --git a/services/a.cc b/services/a.cc
--- a/services/a.cc
+++ b/services/a.cc
@@ -3 +3,2 @@ void F() {
-old
+new
+newer
@@ -9,2 +10,0 @@
-gone
-gone
diff --git a/services/b.h b/services/b.h
--- a/services/b.h
+++ b/services/b.h
@@ -0,0 +1 @@
+int x;
diff --git a/services/c.cc b/services/c.cc
--- a/services/c.cc
+++ /dev/null
@@ -1 +0,0 @@
-gone
"""


class TidyTest(unittest.TestCase):
    def test_changed_lines_are_those_of_the_new_file(self):
        self.assertEqual(tidy.changed_lines(DIFF), {"services/a.cc": [[3, 4]], "services/b.h": [[1, 1]]})

    def test_a_header_is_checked_through_a_file_that_includes_it(self):
        texts = {"services/a.cc": "", "services/d.cc": '#include "services/b.h"'}
        found = tidy.sources_of(tidy.changed_lines(DIFF), texts, texts.get)
        self.assertEqual(found, ["services/a.cc", "services/d.cc"])

    def test_a_header_belongs_to_its_own_source_file(self):
        texts = {"services/a.cc": '#include "services/b.h"', "services/b.cc": ""}
        found = tidy.sources_of({"services/b.h": [[1, 1]]}, texts, texts.get)
        self.assertEqual(found, ["services/b.cc"])


class UnitsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name).resolve() / "build"
        self.source = self.build.parent / "source"
        (self.build / "Unity").mkdir(parents=True)
        self.source.mkdir()

    def write(self, **files):
        """Source files, all in one batch in this order."""
        batch = ""
        for name, text in files.items():
            path = self.source / f"{name}.cc"
            path.write_text(text)
            batch += f'#include "{path}"\n'
        unity = self.build / "Unity" / "unity_0_cxx.cxx"
        unity.write_text(batch)
        command = (f"/usr/bin/ccache /usr/bin/c++ -std=c++20 --param ggc-min-heapsize=1 -fpch-preprocess "
                   f"-include {self.build}/cmake_pch.hxx -MD -MT x.o -MF x.d -o x.o -c {unity}")
        entries = [{"file": str(unity), "directory": str(self.build), "command": command}]
        (self.build / "compile_commands.json").write_text(json.dumps(entries))

    def faults(self):
        return {Path(file).stem: bool(units.check(file, *command))
                for file, command in units.commands(self.build).items()}

    def test_a_file_that_needs_the_one_before_it_is_found(self):
        self.write(first="#include <string>\n", second="std::string text;\n")
        self.assertEqual(self.faults(), {"first": False, "second": True})

    def test_files_that_include_what_they_use_pass(self):
        self.write(first="int one = 1;\n", second="#include <string>\nstd::string text;\n")
        self.assertEqual(self.faults(), {"first": False, "second": False})

    def test_clang_is_spared_what_only_gcc_knows(self):
        words = units.for_clang(["/usr/bin/c++", "--param", "a=1", "-Wno-restrict", "-O1"])
        self.assertEqual(words, ["clang++", "-fconstexpr-steps=500000000", "-O1"])


if __name__ == "__main__":
    unittest.main()

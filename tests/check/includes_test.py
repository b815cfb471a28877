#!/usr/bin/env python3
"""includes_test.py: the tree keeps to include_layers.txt, and a planted include does not pass."""

import tempfile
import unittest
from pathlib import Path

import includes

ROOT = Path(__file__).resolve().parents[2]


class IncludesTest(unittest.TestCase):
    def faults_of(self, name, include):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "services" / name
            file.parent.mkdir(parents=True)
            file.write_text(f'#include "services/{include}"\n')
            table = Path(folder) / "layers.txt"
            table.write_text("common/base\ncommon/worker\nworker_host\nuse npu_worker -> worker_host\n"
                             "npu_worker\nloader\ngateway/http\ngateway\n")
            return includes.check(Path(folder), table)

    def test_the_tree_keeps_to_the_table(self):
        self.assertEqual(includes.check(ROOT), [])

    def test_an_include_of_a_lower_layer_passes(self):
        self.assertEqual(self.faults_of("gateway/main.cc", "gateway/http/http_server.h"), [])
        self.assertEqual(self.faults_of("gateway/http/a.cc", "common/base/check.h"), [])

    def test_an_include_of_a_higher_layer_is_a_fault(self):
        faults = self.faults_of("common/base/check.h", "common/worker/worker.h")
        self.assertEqual(len(faults), 1)
        self.assertIn("services/common/base/check.h:1: common/base includes common/worker", faults[0])

    def test_services_do_not_include_one_another(self):
        faults = self.faults_of("gateway/http/a.cc", "loader/store.h")
        self.assertIn("services do not include one another", faults[0])

    def test_a_use_line_allows_one_service_another(self):
        self.assertEqual(self.faults_of("npu_worker/a.cc", "worker_host/host.h"), [])
        self.assertEqual(len(self.faults_of("gateway/http/a.cc", "worker_host/host.h")), 1)
        self.assertEqual(len(self.faults_of("worker_host/a.cc", "npu_worker/a.h")), 1)

    def test_an_unknown_folder_is_a_fault(self):
        self.assertIn("is not in", self.faults_of("new/a.cc", "common/base/check.h")[0])


if __name__ == "__main__":
    unittest.main()

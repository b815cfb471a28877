#!/usr/bin/env python3
"""notices_test.py SOURCE BUILD VERSION: the notices and bills of materials that cmake/notices.py makes."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, BUILD, VERSION = Path(), Path(), ""


def make(name, programs, source=None):
    """(bill of materials, notices, error) of `programs`."""
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            (sys.executable, "-B", SOURCE / "cmake/notices.py", "--source", source or SOURCE, "--build", BUILD, "--name", name,
             "--version", VERSION, "--output", folder, *programs), capture_output=True, text=True, timeout=100)
        if result.returncode != 0:
            return None, None, result.stderr
        return (json.loads((Path(folder) / "sbom.cdx.json").read_text()),
                (Path(folder) / "THIRD-PARTY-NOTICES.txt").read_text(), "")


class NoticesTest(unittest.TestCase):
    def test_every_library_that_the_gateway_names_is_listed_with_its_version(self):
        bom, notices, error = make("tandem-gateway", ["tandem-gateway"])
        self.assertFalse(error)
        self.assertEqual((bom["bomFormat"], bom["specVersion"]), ("CycloneDX", "1.5"))
        self.assertRegex(bom["serialNumber"], r"^urn:uuid:[0-9a-f-]{36}$")
        self.assertEqual(bom["metadata"]["component"]["version"], VERSION)
        refs = [component["bom-ref"] for component in bom["components"]]
        self.assertEqual(len(refs), len(set(refs)))
        for component in bom["components"]:
            self.assertRegex(component["purl"], r"^pkg:(deb/debian|npm)/[^@]+@[^?]+")
            self.assertIn(f"{component['name']} {component['version']}", notices)
        names = {component["name"] for component in bom["components"]}
        for library in ("grpc", "protobuf", "spdlog", "prometheus-cpp", "ssl"):
            self.assertTrue(any(library in name for name in names), f"{library} is not among {sorted(names)}")
        # Headers alone, so that no shared library tells of them.
        for library in ("nlohmann-json3-dev", "libcli11-dev", "boost"):
            self.assertTrue(any(library in name for name in names), f"{library} is not among {sorted(names)}")
        self.assertIn("Boost Software License", notices)
        self.assertLess(len(notices), 500_000)

    def test_libraries_kept_in_the_source_tree_are_listed(self):
        with tempfile.TemporaryDirectory() as folder:
            vendor = Path(folder) / "services/health/page/vendor"
            (vendor / "dist").mkdir(parents=True)
            lock = {"packages": {"": {}, "node_modules/mathlib": {"version": "1.2.3", "license": "MIT"},
                                 "node_modules/packer": {"version": "9.0.0", "license": "MIT", "dev": True}}}
            (vendor / "package-lock.json").write_text(json.dumps(lock))
            _, _, error = make("tandem-health", ["tandem-health"], folder)
            self.assertIn("has no licences.txt", error)
            (vendor / "dist/licences.txt").write_text("mathlib: some licence\n")
            bom, notices, error = make("tandem-health", ["tandem-health"], folder)
            self.assertFalse(error)
            purls = [component["purl"] for component in bom["components"]]
            self.assertIn("pkg:npm/mathlib@1.2.3", purls)
            self.assertFalse([purl for purl in purls if "packer" in purl])
            self.assertIn("mathlib: some licence", notices)

    def test_the_same_input_gives_the_same_files(self):
        self.assertEqual(make("tandem-health", ["tandem-health"]), make("tandem-health", ["tandem-health"]))

    def test_every_vendored_folder_has_a_lock_file(self):
        for folder in SOURCE.glob("services/**/vendor"):
            self.assertTrue((folder / "package-lock.json").exists(), f"{folder}: notices.py finds libraries by lock files")


if __name__ == "__main__":
    SOURCE, BUILD, VERSION = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])

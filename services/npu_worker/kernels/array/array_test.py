#!/usr/bin/env python3
"""array_test.py FOLDER: the arrays of all operators against their declarations (FOLDER/DEVICE/declaration.json), and
what make.py refuses."""

import copy
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

import make
import model
import xclbin

FOLDER = Path()


def declarations():
    for device in ("npu1", "npu4"):
        declaration = json.loads((FOLDER / device / "declaration.json").read_text())
        for operator in declaration["operators"]:
            yield declaration, operator


class ArraysTest(unittest.TestCase):
    def test_every_operator_has_an_array_with_its_parameters_and_program(self):
        count = 0
        for declaration, operator in declarations():
            with self.subTest(device=declaration["device"], operator=operator["entry"]["name"]):
                array = make.make(declaration, operator)
                place = operator["entry"]["parameters"]
                for core in array.cores:
                    self.assertEqual(core.arguments[0].address, place["address"])
                    self.assertEqual(core.program, operator["program"]["name"])
                    self.assertEqual(core.object_file, operator["program"]["object"])
                    numbers = {lock.number for lock in array.locks if lock.tile == core.tile}
                    wanted = {n for locks in operator["streams"].values() for n in locks.values()}
                    self.assertEqual(numbers, wanted | {place["lock"]})
                self.assertEqual(len(array.cores), 4 * declaration["columns"])
            count += 1
        self.assertEqual(count, 14)

    def test_mlir_names_what_it_uses_and_every_block_once(self):
        for device in ("npu1", "npu4"):
            for path in (FOLDER / device).glob("*.mlir"):
                with self.subTest(path=path):
                    text = path.read_text()
                    defined = re.findall(r"^ +(%\w+) = ", text, re.M)
                    starts = [name for name in defined if name.startswith("%start")]
                    others = [name for name in defined if not name.startswith("%start")]
                    self.assertEqual(len(others), len(set(others)))
                    self.assertEqual(set(re.findall(r"%\w+", text)) - set(defined), set())
                    self.assertEqual(len(starts), text.count("aie.dma_start("))
                    self.assertEqual(text.count("{"), text.count("}"))
                    for region in re.findall(r"aie\.(?:memtile_dma|mem)\(.*?\n    }", text, re.S):
                        labels = re.findall(r"^ +(\^\w+):", region, re.M)
                        self.assertEqual(len(labels), len(set(labels)))
                        self.assertEqual(set(re.findall(r"\^\w+", region)), set(labels))

    def test_a_design_that_differs_from_control_code_is_refused(self):
        declaration, operator = next(declarations())
        other = copy.deepcopy(operator)
        other["shim"].append({"column": 0, "direction": "from_tile", "channel": 1})
        with self.assertRaisesRegex(ValueError, r"shim channels differ.*\(0, 'from_tile', 1\)"):
            make.make(declaration, other)
        other = copy.deepcopy(operator)
        del other["cores"][3]
        with self.assertRaisesRegex(ValueError, "cores differ"):
            make.make(declaration, other)

    def test_what_a_tile_does_not_have_is_refused(self):
        declaration, operator = next(declarations())
        large = copy.deepcopy(operator)
        large["tile"]["head_dim"] = 512
        with self.assertRaisesRegex(ValueError, "tile 0_2: parameters_0_2 at 64512, taken up to"):
            make.make(declaration, large)
        array = make.make(declaration, operator)
        first = next(iter(array.inputs.values()))
        first += first * 16
        with self.assertRaisesRegex(ValueError, "descriptors"):
            array.check()
        array = make.make(declaration, operator)
        array.flows.pop()
        with self.assertRaisesRegex(ValueError, "no stream"):
            array.check()
        with self.assertRaisesRegex(ValueError, "two uses of channel 0 of tile 0_2"):
            array.fills(model.Tile(0, 2), 0, [])

    def test_a_file_that_is_no_xclbin_is_refused(self):
        for data in (b"", b"xclbin2" + bytes(400), b"xclbin2" + bytes(441) + b"\xff\xff\0\0" + bytes(100)):
            with tempfile.NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                with self.assertRaises(xclbin.XclbinError):
                    xclbin.read(file.name)


if __name__ == "__main__":
    FOLDER = Path(sys.argv.pop(1))
    unittest.main()

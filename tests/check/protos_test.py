#!/usr/bin/python3
"""protos_test.py: the tree's .proto files keep the rules of protos.py, and planted faults are found."""

import tempfile
import unittest
from pathlib import Path

import protos

ROOT = Path(__file__).resolve().parents[2]

API = """syntax = "proto3";
package tandem.v1;
import "google/api/annotations.proto";
// A service.
service Generation {
  // A method.
  rpc Generate(GenerateRequest) returns (stream GenerateResponse) {
    option (google.api.http) = { post: "/tandem/v1/generate" body: "*" };
  }
}
// A request.
message GenerateRequest {
  // A text.
  string text = 1;
  // A number.
  optional uint32 max_tokens = 2;
}
// An answer.
message GenerateResponse {
  // An enum.
  FinishReason finish_reason = 1;
}
// An enum.
enum FinishReason {
  FINISH_REASON_UNSPECIFIED = 0;
  FINISH_REASON_STOP = 1;
}
"""


class ProtosTest(unittest.TestCase):
    def faults(self, *replacements):
        """What check() says of a tree whose released API is API and whose own is API with edits."""
        changed = API
        for old, new in replacements:
            self.assertIn(old, changed)
            changed = changed.replace(old, new)
        with tempfile.TemporaryDirectory() as folder:
            root, released = Path(folder) / "tree", Path(folder) / "released"
            for base, text in ((root / "proto", changed), (released / "0.1.0", API)):
                file = base / "tandem/v1/generation.proto"
                file.parent.mkdir(parents=True)
                file.write_text(text)
            (root / "proto/google").symlink_to(ROOT / "proto/google")
            return protos.check(root, released)

    def assert_only_fault(self, expected, *replacements):
        faults = self.faults(*replacements)
        self.assertEqual(len(faults), 1, faults)
        self.assertIn(expected, faults[0])

    def test_the_tree_keeps_the_rules(self):
        self.assertEqual(protos.check(ROOT), [])

    def test_the_same_api_passes(self):
        self.assertEqual(self.faults(), [])

    def test_the_last_release_is_that_of_the_highest_version(self):
        with tempfile.TemporaryDirectory() as folder:
            for version in ("0.9.0", "0.10.0", "0.2.0"):
                (Path(folder) / version).mkdir()
            self.assertEqual(protos.last_release(Path(folder)).name, "0.10.0")

    def test_new_methods_fields_and_values_pass(self):
        self.assertEqual(
            self.faults(
                ("  FINISH_REASON_STOP = 1;\n", "  FINISH_REASON_STOP = 1;\n  FINISH_REASON_LENGTH = 2;\n"),
                ("  string text = 1;\n", "  string text = 1;\n  // New.\n  string model = 3;\n"),
                ("  // A method.\n", "  // New.\n  rpc Stop(StopRequest) returns (StopResponse);\n  // A method.\n"),
                ("// An enum.\nenum", "message StopRequest {}\nmessage StopResponse {}\n// An enum.\nenum"),
            ),
            [],
        )

    def test_missing_comments_are_faults(self):
        for comment, name in (
            ("// A service.\n", "service Generation"),
            ("  // A method.\n", "rpc Generate"),
            ("// A request.\n", "message GenerateRequest"),
            ("  // A number.\n", "field max_tokens"),
            ("// An enum.\nenum", "enum FinishReason"),
        ):
            with self.subTest(name):
                self.assert_only_fault(f"{name} has no comment", (comment, "enum" if "enum" in comment else ""))

    def test_a_fault_names_file_and_line(self):
        self.assert_only_fault("proto/tandem/v1/generation.proto:13: field text", ("  // A text.\n", ""))

    def test_names_in_another_style_are_faults(self):
        field = "  // A text.\n  string text = 1;\n"
        for new, fault in (
            ("  // New.\n  string topK = 3;\n", "field topK is not in lower_snake_case"),
            ("  // New.\n  message nested_one {}\n", "message nested_one is not in PascalCase"),
            ("  oneof Choice {\n    // New.\n    string one = 3;\n  }\n", "oneof Choice is not in lower_snake_case"),
        ):
            with self.subTest(fault):
                self.assert_only_fault(fault, (field, field + new))

    def test_enum_values_have_the_prefix_and_a_zero(self):
        new = "// New.\nenum KindOfGPU {\n  KIND_OF_GPU_UNSPECIFIED = 0;\n  %s = 1;\n}\n// A request.\n"
        self.assertEqual(self.faults(("// A request.\n", new % "KIND_OF_GPU_RADEON")), [])
        self.assert_only_fault("does not begin with KIND_OF_GPU_", ("// A request.\n", new % "RADEON"))
        zero = "// New.\nenum Kind {\n  KIND_GPU = 0;\n}\n// A request.\n"
        self.assert_only_fault("does not end in _UNSPECIFIED", ("// A request.\n", zero))

    def test_a_method_has_messages_of_its_own(self):
        second = "  // New.\n  rpc Stop(GenerateRequest) returns (StopResponse);\n  // A method.\n"
        self.assert_only_fault(
            "rpc Stop has the request .tandem.v1.GenerateRequest, not .tandem.v1.StopRequest",
            ("  // A method.\n", second),
            ("// A request.\n", "message StopResponse {}\n// A request.\n"),
        )

    def test_breaking_changes_are_faults(self):
        text, number = "  // A text.\n  string text = 1;\n", "optional uint32 max_tokens = 2;"
        for old, new, fault in (
            (text, "", "GenerateRequest.text = 1 is gone; reserve its number and its name"),
            (text, "  reserved 1;\n", "GenerateRequest.text = 1 is gone"),
            ("string text = 1;", "string words = 1;", "name text became words"),
            ("string text = 1;", 'string text = 1 [json_name = "words"];', "JSON name text became words"),
            ("string text = 1;", "bytes text = 1;", "type string became bytes"),
            ("string text = 1;", "repeated string text = 1;", "presence singular became repeated"),
            (number, "uint32 max_tokens = 2;", "presence optional became singular"),
            (number, "oneof limit {\n // A number.\n uint32 max_tokens = 2; }", "became in oneof limit"),
            ("  FINISH_REASON_STOP = 1;\n", "", "value FINISH_REASON_STOP = 1 is gone"),
            ("REASON_STOP = 1;", "REASON_STOP = 2;", "FINISH_REASON_STOP = 1 became 2"),
            ("returns (stream ", "returns (", "server_streaming True became False"),
            ('body: "*"', 'body: "text"', 'the HTTP binding post /tandem/v1/generate body "*" is gone'),
            ("/v1/generate", "/v1/produce", "the HTTP binding post /tandem/v1/generate"),
        ):
            with self.subTest(fault):
                faults = [one for one in self.faults((old, new)) if "against 0.1.0" in one]
                self.assertTrue(any(fault in one for one in faults), faults)

    def test_a_removed_field_that_is_reserved_passes(self):
        text = "  // A text.\n  string text = 1;\n"
        self.assertEqual(self.faults((text, '  reserved 1;\n  reserved "text";\n')), [])

    def test_removed_methods_messages_and_enums_are_faults(self):
        faults = self.faults(
            ("rpc Generate(GenerateRequest) returns (stream GenerateResponse)",
             "rpc Produce(ProduceRequest) returns (stream ProduceResponse)"),
            ("message GenerateRequest", "message ProduceRequest"),
            ("message GenerateResponse", "message ProduceResponse"),
            ("FinishReason finish_reason", "FinalReason finish_reason"),
            ("enum FinishReason", "enum FinalReason"),
            ("  FINISH_REASON_", "  FINAL_REASON_"),
        )
        for name in ("rpc tandem.v1.Generation.Generate", "message tandem.v1.GenerateRequest",
                     "message tandem.v1.GenerateResponse", "enum tandem.v1.FinishReason"):
            self.assertIn(f"tandem.v1 against 0.1.0: {name} is gone", faults)

    def test_a_file_that_protoc_refuses_is_a_fault(self):
        faults = self.faults(("string text = 1;", "strin text = 1;"))
        self.assertIn('"strin" is not defined', faults[0])


if __name__ == "__main__":
    unittest.main()

// JSON Schema's own tests, which are not part of this repository: a checkout of
// github.com/json-schema-org/JSON-Schema-Test-Suite at $TANDEM_JSON_SCHEMA_SUITE or in
// build/json-schema-test-suite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "services/common/testing/paths.h"
#include "services/gateway/constraint/testing/vocabularies.h"
#include "services/gateway/constraint/testing/walks.h"

namespace tandem::gateway::constraint {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path FindSuite() {
  if (const char* path = std::getenv("TANDEM_JSON_SCHEMA_SUITE")) return path;
  return SourcePath("build/json-schema-test-suite");
}

Json Read(const std::filesystem::path& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

// Why a schema may be refused: what the message says after its path.
bool IsKnownRefusal(const std::string& message) {
  static const char* const kReasons[] = {
      "is not supported",
      "are not supported",
      "is supported for 1, 0.1, 0.01",
      "is outside of the schema",
      "may match the same value",
      "no value fits it",
      "is supported where additionalProperties is false alone",
  };
  return message.starts_with("schema: #") &&
         std::any_of(std::begin(kReasons), std::end(kReasons),
                     [&](const char* reason) { return message.find(reason) != std::string::npos; });
}

struct Counts {
  int refused = 0;
  int accepted_valid = 0;
  int refused_invalid = 0;
};

// Valid texts that have another spelling than the engine writes.
bool IsOtherSpelling(const std::string& schema, const std::string& text) {
  // 1.0 for 1; exponents above 99, or with bounds; leap seconds at offsets of half hours;
  // quoted names and literal addresses in e-mail addresses.
  const bool bounded =
      schema.find("imum") != std::string::npos || schema.find("multipleOf") != std::string::npos;
  return text.find(".0") != std::string::npos || text.find("e+") != std::string::npos ||
         (bounded && text.find('e') != std::string::npos) ||
         (schema.find("\"email") != std::string::npos &&
          (text.find("\\\"") != std::string::npos || text.find('[') != std::string::npos)) ||
         (schema.find("\"time\"") != std::string::npos && text.find(":60") != std::string::npos);
}

void RunFile(const std::filesystem::path& file, Counts& counts) {
  const auto trie = ByteVocabulary();
  for (const Json& group : Read(file)) {
    const std::string schema = group["schema"].dump();
    const std::string name =
        file.filename().string() + ": " + group["description"].get<std::string>();
    const auto constraint = MakeConstraint(
        {.kind = SourceKind::kJsonSchema, .text = schema, .layout = {.any_key_order = true}}, trie);
    if (!constraint.ok()) {
      ++counts.refused;
      EXPECT_TRUE(IsKnownRefusal(std::string(constraint.status().message())))
          << name << "\n"
          << schema << "\n"
          << constraint.status();
      continue;
    }
    for (const Json& test : group["tests"]) {
      const std::string text = test["data"].dump();
      const auto accepted = Accepts(**constraint, *trie, text);
      ASSERT_TRUE(accepted.ok()) << name << "\n" << accepted.status();
      if (test["valid"].get<bool>()) {
        counts.accepted_valid += *accepted ? 1 : 0;
        EXPECT_TRUE(*accepted || IsOtherSpelling(schema, text))
            << name << ": " << test["description"] << "\n"
            << schema << "\n"
            << text;
      } else {
        counts.refused_invalid += *accepted ? 0 : 1;
        EXPECT_FALSE(*accepted) << name << ": " << test["description"] << "\n"
                                << schema << "\n"
                                << text;
      }
    }
  }
}

class SchemaSuiteTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = FindSuite() / "tests/draft2020-12";
    if (!std::filesystem::is_directory(folder_)) {
      GTEST_SKIP() << "no JSON-Schema-Test-Suite at " << FindSuite()
                   << "; set TANDEM_JSON_SCHEMA_SUITE";
    }
  }
  std::filesystem::path folder_;
};

TEST_F(SchemaSuiteTest, AcceptsWhatIsValidAndRefusesWhatIsNot) {
  // Whether format asserts is a choice: here it does.  Other dialects' vocabularies are not read.
  static const std::set<std::string> kOther = {"format.json", "vocabulary.json"};
  Counts counts;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() != ".json") continue;
    if (kOther.contains(entry.path().filename().string())) continue;
    RunFile(entry.path(), counts);
  }
  std::printf("schemas refused %d, valid accepted %d, invalid refused %d\n", counts.refused,
              counts.accepted_valid, counts.refused_invalid);
  EXPECT_GT(counts.accepted_valid, 250);
  EXPECT_GT(counts.refused_invalid, 200);
}

TEST_F(SchemaSuiteTest, KnowsTheFormats) {
  Counts counts;
  for (const char* format : {"date-time", "date", "time", "email", "uuid", "uri", "ipv4", "ipv6",
                             "uri-reference", "json-pointer", "duration"}) {
    RunFile(folder_ / "optional/format" / (std::string(format) + ".json"), counts);
  }
  EXPECT_GT(counts.accepted_valid, 100);
  EXPECT_GT(counts.refused_invalid, 100);
}

}  // namespace
}  // namespace tandem::gateway::constraint

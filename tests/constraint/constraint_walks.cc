// Prints random schemas and texts that random walks through their masks wrote, for a validator that
// is not ours: a line {"schema", "texts"} for each schema that compiles.
//
//   constraint_walks COUNT [SEED]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "services/common/base/check.h"
#include "services/gateway/constraint/testing/vocabularies.h"
#include "services/gateway/constraint/testing/walks.h"

namespace tandem::gateway::constraint {
namespace {

using Json = nlohmann::ordered_json;

class SchemaMaker {
 public:
  explicit SchemaMaker(std::mt19937& random) : random_(random) {}

  Json Make() {
    Json schema = Schema(3);
    if (!schema.is_object()) schema = Json::object();
    schema["$defs"] = {{"leaf", Scalar()}, {"node", Node()}};
    return schema;
  }

 private:
  unsigned Below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  bool Chance(unsigned percent) { return Below(100) < percent; }
  double Number() {
    const double value = static_cast<double>(Below(2000)) - 1000;
    return Chance(50) ? value : value / 8;
  }
  std::string Name() {
    static const char* const kNames[] = {"a", "b",         "name", "ab", "x_1",
                                         "é", "key \"q\"", "$id",  "日"};
    return kNames[Below(9)];
  }

  Json Node() {
    return {{"type", "object"},
            {"properties",
             {{"value", Scalar()},
              {"next", {{"anyOf", {{{"$ref", "#/$defs/node"}}, {{"type", "null"}}}}}}}},
            {"required", {"value"}},
            {"additionalProperties", false}};
  }

  Json Scalar() {
    Json schema = Json::object();
    switch (Below(9)) {
      case 0:
        return {{"type", "boolean"}};
      case 1:
        return {{"type", {"null", "integer"}}};
      case 2:
        return {{"enum", {"a", 1, nullptr, "ab\n", 2.5, true}}};
      case 3:
        return {{"const", Chance(50) ? Json("x\"y") : Json::array({1, Json{{"k", "v"}}})}};
      case 4: {
        static const char* const kFormats[] = {"date", "time", "date-time", "email",   "uuid",
                                               "ipv4", "ipv6", "uri",       "hostname"};
        return {{"type", "string"}, {"format", kFormats[Below(9)]}};
      }
      case 5:
      case 6:
        schema["type"] = "string";
        if (Chance(50)) {
          static const char* const kPatterns[] = {
              "^[a-z]+$", "b",           "^(x|yz){1,4}$",
              "\\d{2}",   "^\\S+@\\S+$", "^[A-Z][a-z]*( [A-Z][a-z]*)*$",
              "^.{2,5}$", "[\"\\\\]",    "^é+$|q"};
          schema["pattern"] = kPatterns[Below(9)];
        }
        if (Chance(40)) schema["minLength"] = Below(5);
        if (Chance(40)) schema["maxLength"] = 4 + Below(8);
        return schema;
      default:
        schema["type"] = Chance(50) ? "integer" : "number";
        if (Chance(50)) schema[Chance(50) ? "minimum" : "exclusiveMinimum"] = Number();
        if (Chance(50)) schema[Chance(50) ? "maximum" : "exclusiveMaximum"] = Number();
        if (Chance(10)) schema["multipleOf"] = Chance(50) ? 1 : 0.01;
        return schema;
    }
  }

  Json Object(int depth) {
    Json schema = {{"type", "object"}};
    Json required = Json::array();
    Json properties = Json::object();
    for (unsigned n = Below(5); n > 0; --n) {
      const std::string name = Name();
      properties[name] = Schema(depth - 1);
      if (Chance(50)) required.push_back(name);
    }
    if (!properties.empty()) schema["properties"] = properties;
    if (!required.empty()) {
      std::sort(required.begin(), required.end());
      required.erase(std::unique(required.begin(), required.end()), required.end());
      schema["required"] = required;
    }
    if (Chance(20)) schema["patternProperties"] = {{Chance(50) ? "^a" : "_\\d", Schema(depth - 1)}};
    if (Chance(60)) schema["additionalProperties"] = Chance(60) ? Json(false) : Schema(depth - 1);
    if (Chance(15)) schema["maxProperties"] = 1 + Below(4);
    if (Chance(15)) schema["minProperties"] = Below(3);
    if (Chance(15)) schema["x-guidance"] = {{"key_order", "any"}};
    return schema;
  }

  Json Array(int depth) {
    Json schema = {{"type", "array"}};
    if (Chance(70)) schema["items"] = Schema(depth - 1);
    if (Chance(25)) schema["prefixItems"] = {Schema(depth - 1), Schema(depth - 1)};
    if (Chance(50)) schema["minItems"] = Below(3);
    if (Chance(70)) schema["maxItems"] = 2 + Below(3);
    return schema;
  }

  Json Schema(int depth) {
    const unsigned kind = depth <= 0 ? Below(5) : Below(14);
    if (kind < 4) return Scalar();
    if (kind == 4) return {{"$ref", Chance(70) ? "#/$defs/leaf" : "#/$defs/node"}};
    if (kind < 8) return Object(depth);
    if (kind < 11) return Array(depth);
    if (kind == 11) return {{"anyOf", {Schema(depth - 1), Schema(depth - 1)}}};
    if (kind == 12) return {{"oneOf", {Schema(depth - 1), Schema(depth - 1)}}};
    return {
        {"allOf",
         {Schema(depth - 1), Chance(50) ? Json{{"maxLength", 6}, {"maxItems", 3}, {"maximum", 500}}
                                        : Json{{"minProperties", 1}, {"minLength", 2}}}}};
  }

  std::mt19937& random_;
};

int Run(int count, unsigned seed) {
  const auto trie = SmallVocabulary();
  std::mt19937 random(seed);
  SchemaMaker maker(random);
  for (int i = 0; i < count; ++i) {
    const Json schema = maker.Make();
    const auto constraint =
        MakeConstraint({.kind = SourceKind::kJsonSchema, .text = schema.dump()}, trie);
    if (!constraint.ok()) {
      // Two branches that overlap, keywords that no value fits.  Nothing else may go wrong.
      TANDEM_CHECK(constraint.status().code() == absl::StatusCode::kInvalidArgument);
      std::cout << Json{{"schema", schema}, {"refused", std::string(constraint.status().message())}}
                << '\n';
      continue;
    }
    Json texts = Json::array();
    for (int j = 0; j < 3; ++j) {
      const auto text =
          RandomWalk(**constraint, *trie, random, static_cast<int>(random() % 20), 400);
      if (!text.ok()) {
        std::cerr << schema << '\n' << text.status() << '\n';
        return 1;
      }
      if (*text) texts.push_back(**text);
    }
    std::cout << Json{{"schema", schema}, {"texts", texts}} << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace tandem::gateway::constraint

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: constraint_walks COUNT [SEED]\n");
    return 2;
  }
  return tandem::gateway::constraint::Run(std::atoi(argv[1]),
                                          argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1);
}

#include "tools/simulate/run/constraints.h"

#include <string>
#include <utility>
#include <vector>

#include "services/common/base/check.h"
#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/engine/testing/toy_model.h"
#include "tools/simulate/cluster/simulated_loader.h"

namespace tandem::simulate {
namespace {

using gateway::constraint::Constraint;
using gateway::constraint::ConstraintSource;
using gateway::constraint::SourceKind;
using gateway::constraint::TokenTrie;

std::shared_ptr<Constraint> Compile(SourceKind kind, std::string text) {
  std::vector<std::string> bytes;
  for (uint32_t token = 0; token < TheTokenizer().vocab_size(); ++token) {
    bytes.emplace_back(TheTokenizer().TokenBytes(token));
  }
  auto trie =
      TokenTrie::Create(bytes, {gateway::testing::kToyEos, gateway::testing::kToyEndOfTurn});
  TANDEM_CHECK(trie.ok());
  auto grammar =
      gateway::constraint::CompileSource(ConstraintSource{.kind = kind, .text = std::move(text)});
  TANDEM_CHECK(grammar.ok());
  return Constraint::Create(*std::move(grammar), *trie, {});
}

}  // namespace

const gateway::Tokenizer& TheTokenizer() {
  static const auto* const tokenizer =
      gateway::Tokenizer::Create(TheModel().vocabulary).value().release();
  return *tokenizer;
}

const std::shared_ptr<Constraint>& TheSchema() {
  static const auto* const schema = new std::shared_ptr<Constraint>(
      Compile(SourceKind::kJsonSchema,
              R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},
      "kind":{"enum":["theatre","inn"]},"age":{"type":"integer","minimum":0,"maximum":99}},
      "required":["name","kind","age"],"additionalProperties":false})"));
  return *schema;
}

const std::shared_ptr<Constraint>& ThePattern() {
  static const auto* const pattern = new std::shared_ptr<Constraint>(
      Compile(SourceKind::kRegex, "(an|in|the) [a-e]{2,7}( twenty-two)?"));
  return *pattern;
}

}  // namespace tandem::simulate

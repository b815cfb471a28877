#include "tools/tandem/bench/bench_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace tandem {

std::string BenchTest::Name() const {
  std::string name = absl::StrFormat("%s%d", is_prompt ? "pp" : "tg", tokens);
  if (depth > 0) name += absl::StrFormat("@d%d", depth);
  if (batch > 1) name += absl::StrFormat(" b%d", batch);
  return name;
}

std::string BenchPictureTest::Name() const {
  std::string name = absl::StrFormat("img%d", images);
  if (batch > 1) name += absl::StrFormat(" b%d", batch);
  return name;
}

uint32_t BenchTest::PromptTokens() const { return is_prompt ? tokens : std::max(depth, 1u); }

std::vector<BenchTest> PlanTests(const BenchOptions& options) {
  std::vector<BenchTest> tests;
  for (const uint32_t batch : options.batches) {
    for (const uint32_t prompt : options.prompts) {
      if (prompt > 0) tests.push_back({.is_prompt = true, .tokens = prompt, .batch = batch});
    }
    for (const uint32_t tokens : options.tokens) {
      if (tokens == 0) continue;
      for (const uint32_t depth : options.depths) {
        tests.push_back({.tokens = tokens, .batch = batch, .depth = depth});
      }
    }
  }
  return tests;
}

absl::Status CheckTests(const std::vector<BenchTest>& tests, uint32_t context_len,
                        uint32_t max_sequences) {
  if (tests.empty()) {
    return absl::InvalidArgumentError(
        "nothing to measure: --prompt and --tokens are both 0, and there are no --images");
  }
  for (const BenchTest& test : tests) {
    if (test.batch == 0) return absl::InvalidArgumentError("--batch 0: at least one sequence");
    if (test.Length() > context_len) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: a sequence needs %d positions, the cluster's context is %d (tandem serve --context "
          "or --kv-tokens, or the model's own)",
          test.Name(), test.Length(), context_len));
    }
    if (test.batch > max_sequences) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %d sequences, the cluster runs at most %d at a time (tandem serve "
                          "--max-sequences)",
                          test.Name(), test.batch, max_sequences));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem

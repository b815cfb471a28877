// A sequence whose KV moves from one plan's workers to another's.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/testing/plan_runner.h"

namespace tandem::testing {

struct KvCopyCase {
  std::vector<uint32_t> prompt;  // computed by the first plan
  std::vector<uint32_t> next;    // rows that both plans go on with
};
// Logits of `next`, [next.size(), vocab_size].
struct KvCopyResult {
  std::vector<float> computed;  // by the plan that computed the prompt
  std::vector<float> copied;    // by the one that has a copy of its KV
};

// Copies every block of the prompt to other blocks, as many at a time as the area takes.
// REQUIRES plans of one model, with the same block_tokens and KV format, and an area that takes a
// block of each group.  Errors are the workers'.
absl::StatusOr<KvCopyResult> RunKvCopyCase(PlanRunner& from, PlanRunner& to,
                                           const KvCopyCase& test_case);

}  // namespace tandem::testing

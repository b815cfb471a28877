#include "services/common/testing/kv_copy_case.h"

#include <algorithm>
#include <cstring>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/common/testing/step_builder.h"

namespace tandem::testing {
namespace {

using Tables = std::vector<uint32_t>[kNumKvGroups];

// One sequence of a plan, whose blocks are in an order of the seed's.
class OneSequence {
 public:
  OneSequence(PlanRunner& runner, uint32_t seed)
      : runner_(runner), steps_(runner.limits(), seed), sequence_(steps_.AddSequence()) {}

  // Adds the rows of `tokens`, an output at each.
  StepBatch Add(const std::vector<uint32_t>& tokens) {
    steps_.Begin();
    steps_.set_want_logits(true);
    const uint32_t first = steps_.AddRows(sequence_, tokens);
    for (uint32_t i = 0; i < tokens.size(); ++i) steps_.AddOutput(first + i);
    return steps_.batch();
  }
  // Computes them; their logits.
  absl::StatusOr<std::vector<float>> Run(const std::vector<uint32_t>& tokens) {
    TANDEM_RETURN_IF_ERROR(runner_.RunStep(Add(tokens)));
    std::vector<float> logits;
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      logits.insert(logits.end(), runner_.Logits(i).begin(), runner_.Logits(i).end());
    }
    return logits;
  }

 private:
  PlanRunner& runner_;
  StepBuilder steps_;
  const uint32_t sequence_;
};

void TablesOf(const StepBatch& step, Tables& tables) {
  const SequenceEntry& sequence = step.sequences[0];
  const size_t entries = step.block_table.size() / kNumKvGroups;
  for (int group = 0; group < kNumKvGroups; ++group) {
    const auto table = step.block_table.subspan(sequence.table_offset[group], entries);
    tables[group].assign(table.begin(), table.end());
  }
}

absl::Status Copy(PlanRunner& from, const Tables& read, PlanRunner& to, const Tables& written) {
  for (size_t i = 0; i < read[kGlobalGroup].size(); ++i) {
    std::vector<uint32_t> sources[kNumKvGroups], targets[kNumKvGroups];
    for (int group = 0; group < kNumKvGroups; ++group) {
      TANDEM_CHECK((read[group][i] == kNoBlock) == (written[group][i] == kNoBlock));
      if (read[group][i] == kNoBlock) continue;
      sources[group].push_back(read[group][i]);
      targets[group].push_back(written[group][i]);
    }
    std::ranges::fill(from.KvArea(), std::byte{0xA5});
    TANDEM_RETURN_IF_ERROR(from.CopyKv({.blocks = {sources[0], sources[1]}}));
    std::ranges::copy(from.KvArea(), to.KvArea().begin());
    TANDEM_RETURN_IF_ERROR(to.CopyKv({.write = true, .blocks = {targets[0], targets[1]}}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KvCopyResult> RunKvCopyCase(PlanRunner& from, PlanRunner& to,
                                           const KvCopyCase& test_case) {
  OneSequence source(from, 1), target(to, 77);
  Tables read, written;
  const StepBatch prompt = source.Add(test_case.prompt);
  TablesOf(prompt, read);
  TANDEM_RETURN_IF_ERROR(from.RunStep(prompt));
  // Takes blocks, and is not run.
  TablesOf(target.Add(test_case.prompt), written);
  TANDEM_RETURN_IF_ERROR(Copy(from, read, to, written));
  KvCopyResult result;
  TANDEM_ASSIGN_OR_RETURN(result.computed, source.Run(test_case.next));
  TANDEM_ASSIGN_OR_RETURN(result.copied, target.Run(test_case.next));
  return result;
}

}  // namespace tandem::testing

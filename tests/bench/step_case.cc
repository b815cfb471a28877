#include "tests/bench/step_case.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "services/common/base/status_macros.h"

namespace tandem::bench {
namespace {

constexpr uint32_t kMaxCount = 1u << 20;

uint32_t CeilDiv(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

absl::StatusOr<StepCase> ParseCase(const std::string& text) {
  const auto refuse = [&text] {
    return absl::InvalidArgumentError(absl::StrFormat(
        "case '%s': write d8 (8 sequences decode), d8x4 (4 rows of each), d8@4096 (at that depth), "
        "p2048 or p2048@4096 (a prompt)",
        text.substr(0, 40)));
  };
  StepCase step_case;
  step_case.name = text;
  if (text.empty() || (text[0] != 'd' && text[0] != 'p')) return refuse();
  step_case.is_prompt = text[0] == 'p';
  const std::vector<std::string> parts = absl::StrSplit(text.substr(1), '@');
  const std::vector<std::string> counts = absl::StrSplit(parts[0], 'x');
  uint32_t count = 0;
  if (parts.size() > 2 || counts.size() > (step_case.is_prompt ? 1 : 2) ||
      !absl::SimpleAtoi(counts[0], &count) || count == 0 || count > kMaxCount) {
    return refuse();
  }
  if (counts.size() == 2 && (!absl::SimpleAtoi(counts[1], &step_case.chain) ||
                             step_case.chain == 0 || step_case.chain > kMaxCount / count)) {
    return refuse();
  }
  (step_case.is_prompt ? step_case.prompt_tokens : step_case.sequences) = count;
  if (parts.size() == 2 &&
      (!absl::SimpleAtoi(parts[1], &step_case.depth) || step_case.depth > kMaxCount)) {
    return refuse();
  }
  return step_case;
}

}  // namespace

uint32_t StepCase::RowsPerStep(uint32_t max_rows) const {
  return std::min(max_rows, is_prompt ? prompt_tokens : sequences * chain);
}

uint32_t StepCase::NumSteps(uint32_t max_rows, uint32_t tokens) const {
  return is_prompt ? CeilDiv(prompt_tokens, max_rows) : tokens;
}

uint32_t StepCase::EndLength(uint32_t tokens) const {
  return depth + (is_prompt ? prompt_tokens : tokens * chain);
}

absl::StatusOr<std::vector<StepCase>> ParseCases(const std::string& text) {
  std::vector<StepCase> cases;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    TANDEM_ASSIGN_OR_RETURN(StepCase step_case, ParseCase(part));
    cases.push_back(std::move(step_case));
  }
  return cases;
}

testing::RunLimits LimitsFor(const ModelConfig& config, const std::vector<StepCase>& cases,
                             uint32_t max_rows, uint32_t tokens) {
  testing::RunLimits limits;
  limits.max_rows = max_rows;
  limits.max_sequences = 1;
  limits.max_outputs = 1;
  limits.max_logit_outputs = 1;
  limits.context_len = 1;
  for (const StepCase& step_case : cases) {
    const uint32_t length = step_case.EndLength(tokens);
    const uint32_t blocks = CeilDiv(length, limits.block_tokens);
    // A window's blocks, those a step adds, and one that is only partly seen.
    const uint32_t window_blocks =
        std::min(blocks, CeilDiv(config.sliding_window + max_rows, limits.block_tokens) + 2);
    limits.max_sequences = std::max(limits.max_sequences, step_case.sequences);
    limits.max_outputs = std::max(limits.max_outputs, step_case.Outputs());
    limits.context_len = std::max(limits.context_len, length);
    limits.num_blocks[kGlobalGroup] =
        std::max(limits.num_blocks[kGlobalGroup], blocks * step_case.sequences);
    limits.num_blocks[kWindowGroup] =
        std::max(limits.num_blocks[kWindowGroup], window_blocks * step_case.sequences);
  }
  return limits;
}

StepWork WorkOf(const StepCase& step_case, const WeightSet& weights, const StepLimits& limits,
                uint32_t tokens) {
  const ModelConfig& config = weights.config();
  StepWork work;
  const double num_steps = step_case.NumSteps(limits.max_rows, tokens);
  const double rows = static_cast<double>(step_case.is_prompt ? step_case.prompt_tokens
                                                              : step_case.Outputs() * tokens) /
                      num_steps;
  const double outputs = step_case.is_prompt ? 1.0 / num_steps : step_case.Outputs();
  const std::vector<WeightRole> ffn_roles = RolesOfStage(StageKind::kFfn);
  for (const PackedTensor& tensor : weights.tensors()) {
    const bool is_head = &tensor == &weights.head();
    if (tensor.role == WeightRole::kEmbedding && !is_head) continue;
    const bool of_outputs = is_head || (tensor.layer_idx + 1 == config.num_layers &&
                                        std::ranges::count(ffn_roles, tensor.role) > 0);
    const double elements =
        static_cast<double>(tensor.shape.rows) * static_cast<double>(tensor.shape.cols);
    const double share = of_outputs ? std::min(1.0, outputs) : 1.0;
    for (const Shard& shard : tensor.shards) {
      work.weight_bytes += share * static_cast<double>(ShardBytes(tensor, shard));
    }
    if (!IsNorm(tensor.role)) work.flops += 2 * elements * (of_outputs ? outputs : rows);
  }
  // The middle step stands for all of them.
  const double length =
      step_case.depth +
      (step_case.is_prompt ? step_case.prompt_tokens : tokens * step_case.chain) / 2.0;
  const double window = config.sliding_window + rows / step_case.sequences - 1;
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const double seen = config.is_global(layer) ? length : std::min(length, window);
    work.kv_bytes += step_case.sequences * seen * 2 *
                     static_cast<double>(RowBytes(limits.kv_dtype, config.kv_dim()));
  }
  return work;
}

}  // namespace tandem::bench

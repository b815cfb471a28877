// The table of sizes in docs/operations.md is what the code computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/plan/planner.h"
#include "services/common/testing/paths.h"
#include "services/gateway/executor/step_sizing.h"
#include "services/loader/packing/packing_plan.h"
#include "services/loader/synthetic/synthetic_model.h"

namespace tandem {
namespace {

constexpr uint64_t kMaxRegionBytes = uint64_t{1} << 30;  // the loader's default
constexpr uint32_t kMaxRows = 512;                       // the gateway's
constexpr uint32_t kBlockTokens = 16;

double Gibibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1ull << 30); }

// One request's KV cache, the whole model on one worker of boundless memory.
uint64_t KvBytes(const ModelConfig& config, uint32_t context_len) {
  WorkerDescription worker;
  worker.name = "gpu0";
  worker.stages = {StageKind::kEmbed, StageKind::kQkv, StageKind::kAttend,
                   StageKind::kOut,   StageKind::kFfn, StageKind::kHead};
  worker.weight_dtypes = {DType::kQ4_0};
  worker.max_rows = kMaxRows;
  const auto plan = MakePlan(config, worker.weight_dtypes, {worker}, {.npu = NpuPolicy::kOff});
  EXPECT_TRUE(plan.ok()) << plan.status();
  const auto limits =
      gateway::MakeStepLimits(config, *plan,
                              {.max_rows = kMaxRows,
                               .max_sequences = 1,
                               .context_len = std::min(context_len, config.context_len),
                               .block_tokens = kBlockTokens});
  EXPECT_TRUE(limits.ok()) << limits.status();
  uint64_t bytes = 0;
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    bytes += uint64_t{limits->num_blocks[group]} *
             gateway::KvBlockBytes(config, *plan, 0, group, DType::kF16, kBlockTokens);
  }
  return bytes;
}

std::string Table() {
  const std::vector<std::string> types = {"q4_0", "q4_k_m", "q8_0", "bf16"};
  std::string text = "| model | weights, GiB:";
  for (const std::string& type : types) text += " " + type + " |";
  text += " KV of a request, GiB: 8,192 tokens | 32,768 | 131,072 |\n|---";
  for (size_t i = 0; i < types.size() + 3; ++i) text += "|---";
  text += "|\n";
  for (const char* shape : {"270m", "1b", "4b", "12b", "27b"}) {
    absl::StrAppendFormat(&text, "| Gemma 3 %s |", shape);
    ModelConfig config;
    for (const std::string& type : types) {
      const auto source =
          loader::OpenSynthetic(absl::StrFormat("synthetic:gemma3-%s?type=%s", shape, type));
      EXPECT_TRUE(source.ok()) << source.status();
      config = (*source)->config();
      const auto plan = loader::PlanPacking((*source)->tensors(), config, kMaxRegionBytes);
      EXPECT_TRUE(plan.ok()) << plan.status();
      absl::StrAppendFormat(&text, " %.2f |", Gibibytes(plan->packed_bytes));
    }
    for (const uint32_t context_len : {8192u, 32768u, 131072u}) {
      const bool has_it = context_len <= config.context_len;
      text += has_it ? absl::StrFormat(" %.2f |", Gibibytes(KvBytes(config, context_len))) : " - |";
    }
    text += "\n";
  }
  return text;
}

TEST(SizingDocTest, TheTableIsWhatTheCodeComputes) {
  const std::string path = SourcePath("docs/operations.md");
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string begin = "<!-- sizes: made by sizing_doc_test -->\n", end = "<!-- end of sizes";
  const size_t from = text.find(begin), to = text.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const std::string table = Table();
  EXPECT_EQ(text.substr(from + begin.size(), to - from - begin.size()), table)
      << "put this into " << path << ":\n"
      << table;
}

}  // namespace
}  // namespace tandem

// For tests: the Vulkan worker on the device at hand, and sequences fed to it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"
#include "services/gpu_worker/stages/gpu_worker.h"

namespace tandem::gpu {

using testing::PlanRunner;
using testing::StepBuilder;

// A longest submission: every stage takes longer, and is a submission by itself.
inline constexpr absl::Duration kCutAll = absl::Nanoseconds(1);

inline std::vector<uint32_t> Tokens(uint32_t n, uint32_t vocab_size, uint32_t seed) {
  std::vector<uint32_t> tokens(n);
  for (uint32_t i = 0; i < n; ++i) tokens[i] = (i * 2654435761u + seed * 40503u) / 7 % vocab_size;
  return tokens;
}
class GpuWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override { Open({.validation = true}); }

  void Open(const GpuWorkerOptions& options) {
    auto worker = GpuWorker::Create(options);
    if (worker.status().code() == absl::StatusCode::kNotFound) GTEST_SKIP() << worker.status();
    ASSERT_OK(worker.status());
    worker_ = *std::move(worker);
  }

  // Feeds `tokens` as one sequence in chunks, other sequences' rows in front of and behind its
  // own where `with_neighbours`; every logit of every token.
  std::vector<float> Logits(PlanRunner& runner, const std::vector<uint32_t>& tokens, uint32_t chunk,
                            bool with_neighbours = false) {
    std::vector<float> all;
    StepBuilder steps(runner.limits(), 1 + chunk);
    const uint32_t before = steps.AddSequence(), own = steps.AddSequence(),
                   after = steps.AddSequence();
    const uint32_t vocab = runner.config().vocab_size;
    for (uint32_t at = 0; at < tokens.size(); at += chunk) {
      const auto n = std::min<uint32_t>(chunk, static_cast<uint32_t>(tokens.size()) - at);
      steps.Begin();
      steps.set_want_logits(true);
      if (with_neighbours) steps.AddRows(before, Tokens(1 + at % 5, vocab, at));
      const uint32_t first = steps.AddRows(own, {tokens.begin() + at, tokens.begin() + at + n});
      if (with_neighbours) steps.AddRows(after, Tokens(1 + at % 3, vocab, 7 * at));
      for (uint32_t i = 0; i < n; ++i) steps.AddOutput(first + i);
      EXPECT_OK(runner.RunStep(steps.batch()));
      for (uint32_t i = 0; i < n; ++i) {
        all.insert(all.end(), runner.Logits(i).begin(), runner.Logits(i).end());
      }
    }
    return all;
  }

  std::unique_ptr<GpuWorker> worker_;
};

// One kernel for any number of rows, as on a software device: between kernels bits differ.
inline void UsePlainKernels(Tuning& tuning) {
  tuning.matrix.fragments = {};
  tuning.matrix.narrow = false;
  tuning.matvec_max_rows = 0;
  tuning.norm_inputs = 0;
  tuning.decode = {};
  tuning.tiled = {};
}

}  // namespace tandem::gpu

// A scheduler small enough that tests reach its limits.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>

#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {

inline SchedulerOptions SmallSchedulerOptions() {
  SchedulerOptions options;
  options.limits = {.max_rows = 32,
                    .max_sequences = 8,
                    .max_outputs = 16,
                    .max_logit_outputs = 2,
                    .max_table_len = 512,
                    .vocab_size = 10000,
                    .context_len = 128,
                    .block_tokens = 4,
                    .sliding_window = 10,
                    .num_blocks = {40, 40}};
  options.max_sequences = 8;
  options.max_rows = 32;
  options.chunk_rows = 16;
  return options;
}

// No two prompts begin alike.
inline SequenceSpec PromptSpec(uint64_t id, uint32_t prompt_len) {
  SequenceSpec spec{.id = id};
  spec.prompt.resize(prompt_len);
  std::iota(spec.prompt.begin(), spec.prompt.end(), static_cast<uint32_t>(1000 * id - 999));
  return spec;
}

inline std::unique_ptr<Scheduler> MakeScheduler(const SchedulerOptions& options) {
  auto scheduler = Scheduler::Create(options);
  EXPECT_TRUE(scheduler.ok()) << scheduler.status();
  return *std::move(scheduler);
}

}  // namespace tandem::gateway

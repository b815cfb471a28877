// Measures the scheduler's time per step, with and without the prefix cache: 128 sequences of 4,096
// tokens decode, and a queue of requests with a common prefix is admitted, each ending at once.
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>

#include "services/common/base/check.h"
#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kSequences = 128;
constexpr uint32_t kPrompt = 4096;

std::unique_ptr<Scheduler> Make(bool prefix_cache) {
  SchedulerOptions options;
  options.limits = {.max_rows = 2048,
                    .max_sequences = 2 * kSequences,
                    .max_outputs = 2048,
                    .max_logit_outputs = 256,
                    .max_table_len = 4 * kSequences * 8192 / 16,
                    .vocab_size = 262144,
                    .context_len = 8192,
                    .block_tokens = 16,
                    .sliding_window = 1024,
                    .num_blocks = {kSequences * 600, kSequences * 300}};
  options.max_sequences = 2 * kSequences;
  options.max_rows = 2048;
  options.chunk_rows = 2048;
  options.prefix_cache = prefix_cache;
  return Scheduler::Create(options).value();
}

// Seconds in the scheduler; every sampled output is decided.
double RunStep(Scheduler& scheduler, const std::function<void(uint64_t)>& decided) {
  const auto begin = std::chrono::steady_clock::now();
  const ScheduledStep* const step = scheduler.Schedule();
  TANDEM_CHECK(step != nullptr);
  scheduler.StepDone();
  for (const ScheduledOutput& output : step->outputs) {
    scheduler.Append(output.sequence, output.position % 1000, {});
    decided(output.sequence);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Measure(bool prefix_cache) {
  const std::unique_ptr<Scheduler> scheduler = Make(prefix_cache);
  std::mt19937 random(1);
  const auto add = [&](uint64_t id, uint32_t alike) {
    SequenceSpec spec{.id = id};
    for (uint32_t i = 0; i < kPrompt; ++i) spec.prompt.push_back(i < alike ? i : random() % 262144);
    TANDEM_CHECK(scheduler->Add(std::move(spec)).ok());
  };
  for (uint64_t id = 1; id <= kSequences; ++id) add(id, 0);
  uint32_t prefilled = 0;
  while (prefilled < kSequences) RunStep(*scheduler, [&](uint64_t) { ++prefilled; });
  constexpr int kSteps = 1000;
  double decode = 0;
  for (int i = 0; i < kSteps; ++i) decode += RunStep(*scheduler, [](uint64_t) {});
  // Each request is alone with the 128 and ends with its first token.
  constexpr int kRequests = 200;
  double admit = 0;
  for (int i = 0; i < kRequests; ++i) {
    add(1000 + i, kPrompt - 17);
    for (bool over = false; !over;) {
      admit += RunStep(*scheduler, [&](uint64_t id) { over |= id >= 1000; });
    }
    scheduler->Remove(1000 + i);
  }
  std::printf("prefix cache %-3s  decode step %.1f us  request let in, all its steps %.1f us\n",
              prefix_cache ? "on" : "off", 1e6 * decode / kSteps, 1e6 * admit / kRequests);
}

}  // namespace
}  // namespace tandem::gateway

int main() {
  for (int pair = 0; pair < 3; ++pair) {
    for (const bool prefix_cache : {false, true}) tandem::gateway::Measure(prefix_cache);
  }
}

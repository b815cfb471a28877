// Counters of the scheduler and the engine since start: one table, which the status message and the
// page for Prometheus both read.
//
// To add a counter, add its field and its row here, and count it (Scheduler and Engine have a
// `counters_` each).  Nothing else in the code lists counters.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

#include "services/common/metrics/metric_spec.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

struct SchedulerCounters {
  uint64_t steps = 0;
  uint64_t steps_queued = 0;  // sent to the workers while another step ran
  uint64_t step_bytes = 0;    // of steps, written to the exchange region
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t speculative_rows = 0;  // rows computed from a speculative token
  uint64_t accepted_tokens = 0;   // speculative tokens that the sampler accepted
  uint64_t rejected_tokens = 0;   // speculative tokens that the sampler rejected
  uint64_t steps_drafted = 0;     // steps that verified guesses of drafters
  uint64_t near_ties = 0;         // draws of answers with guesses that last bits could decide
  uint64_t preemptions = 0;
  uint64_t fair_preemptions = 0;         // preemptions that gave another tenant its share
  uint64_t prefix_lookups = 0;           // searches of the prefix cache
  uint64_t prefix_tokens_looked_up = 0;  // of prompts, at their first admission
  uint64_t prefix_tokens_found = 0;
  uint64_t prefix_tokens_missed = 0;
};

// Metrics of the counters.
struct SchedulerMetrics {
  static constexpr MetricSpec kTokens{"tandem_tokens_total",
                                      MetricType::kCounter,
                                      "Prompt tokens computed and completion tokens generated.",
                                      {"kind"}};
  static constexpr MetricSpec kGuesses{
      "tandem_guesses_total",
      MetricType::kCounter,
      "Speculative tokens by the sampler's decision. right: accepted; wrong: rejected, and the "
      "row was computed again.",
      {"result"}};
  static constexpr MetricSpec kStepsDrafted{"tandem_steps_drafted_total", MetricType::kCounter,
                                            "Steps that verified guesses of drafters."};
  static constexpr MetricSpec kNearTies{
      "tandem_draft_near_ties_total", MetricType::kCounter,
      "Tokens of answers with guesses of drafters that another one was so near to that, where the "
      "number of rows changes last bits, these could decide."};
  static constexpr MetricSpec kPrefixTokens{
      "tandem_prefix_cache_tokens_total",
      MetricType::kCounter,
      "Prompt tokens by where their KV came from. found: the prefix cache; computed: a step.",
      {"result"}};
  static constexpr MetricSpec kPreemptions{
      "tandem_preemptions_total", MetricType::kCounter,
      "Requests preempted because no KV block was free; their rows are computed again."};
};

// Where a counter is shown.
struct SchedulerCounter {
  uint64_t SchedulerCounters::*value;
  void (v1::SchedulerStatus::*set_status)(uint64_t) = nullptr;  // null: not part of the status
  const MetricSpec* metric = nullptr;                           // null: no metric
  std::string_view label = {};                                  // of a metric that has one
};

inline constexpr SchedulerCounter kSchedulerCounters[] = {
    {&SchedulerCounters::steps, &v1::SchedulerStatus::set_steps},
    {&SchedulerCounters::steps_queued, &v1::SchedulerStatus::set_steps_queued},
    {&SchedulerCounters::step_bytes, &v1::SchedulerStatus::set_step_bytes},
    {&SchedulerCounters::prompt_tokens, &v1::SchedulerStatus::set_prompt_tokens,
     &SchedulerMetrics::kTokens, "prompt"},
    {&SchedulerCounters::completion_tokens, &v1::SchedulerStatus::set_completion_tokens,
     &SchedulerMetrics::kTokens, "completion"},
    {&SchedulerCounters::speculative_rows, &v1::SchedulerStatus::set_rows_fed},
    {&SchedulerCounters::accepted_tokens, &v1::SchedulerStatus::set_right_guesses,
     &SchedulerMetrics::kGuesses, "right"},
    {&SchedulerCounters::rejected_tokens, &v1::SchedulerStatus::set_wrong_guesses,
     &SchedulerMetrics::kGuesses, "wrong"},
    {&SchedulerCounters::steps_drafted, &v1::SchedulerStatus::set_steps_drafted,
     &SchedulerMetrics::kStepsDrafted},
    {&SchedulerCounters::near_ties, nullptr, &SchedulerMetrics::kNearTies},
    {&SchedulerCounters::preemptions, &v1::SchedulerStatus::set_preemptions,
     &SchedulerMetrics::kPreemptions},
    {&SchedulerCounters::fair_preemptions},
    {&SchedulerCounters::prefix_lookups},
    {&SchedulerCounters::prefix_tokens_looked_up,
     &v1::SchedulerStatus::set_prefix_tokens_looked_up},
    {&SchedulerCounters::prefix_tokens_found, &v1::SchedulerStatus::set_prefix_tokens_found,
     &SchedulerMetrics::kPrefixTokens, "found"},
    {&SchedulerCounters::prefix_tokens_missed, nullptr, &SchedulerMetrics::kPrefixTokens,
     "computed"},
};
static_assert(sizeof(SchedulerCounters) == sizeof(uint64_t) * std::size(kSchedulerCounters),
              "each field of SchedulerCounters has one row in kSchedulerCounters");

inline SchedulerCounters operator+(SchedulerCounters a, const SchedulerCounters& b) {
  for (const SchedulerCounter& counter : kSchedulerCounters) a.*counter.value += b.*counter.value;
  return a;
}

}  // namespace tandem::gateway

#include "services/gateway/placement/placement_costs.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "services/common/base/check.h"

namespace tandem::gateway {
namespace {

// The decoding step of the load, and the streams in it.
const StepSeconds& Decoding(const PlacementCosts& costs, const ReferenceLoad& load) {
  return load.streams > 1 ? costs.full : costs.lone;
}
double Streams(const PlacementCosts& costs, const ReferenceLoad& load) {
  return load.streams > 1 ? costs.streams : 1.0;
}

std::array<const StepSeconds*, 3> StepsOf(const PlacementCosts& costs) {
  return {&costs.prompt, &costs.lone, &costs.full};
}

// Without any device time, which devices without timestamps report, all workers count.
bool Uses(const StepSeconds& step, size_t worker) {
  return step.device[worker] > 0.0 ||
         std::ranges::none_of(step.device, [](double seconds) { return seconds > 0.0; });
}

double Joules(const StepSeconds& step, const Slowdowns& slowdowns) {
  return std::reduce(step.watts.begin(), step.watts.end()) * Slowed(step, slowdowns);
}

bool HasPower(const PlacementCosts& costs) {
  return PowerMeasured(costs) && WorkersWithoutPower(costs).empty();
}

// Seconds for a token of every stream: by one step of all, or by two of half of them each, on different
// devices at a time.
struct Halves {
  double one_step = 0.0;
  double two_steps = 0.0;
  bool Pay() const { return two_steps < 0.95 * one_step; }
};

// REQUIRES streams >= 2, and costs of two streams and two devices at least.
Halves HalvesOf(const PlacementCosts& costs, uint32_t streams, const Slowdowns& slowdowns) {
  // On the line between what one stream and all of them take.
  const auto at = [&](double one, double all, double count) {
    return one + (all - one) * (count - 1.0) / (costs.streams - 1.0);
  };
  const uint32_t half = (streams + 1) / 2;
  Halves halves{.one_step = slowdowns.other * at(costs.lone.other, costs.full.other, streams)};
  for (size_t w = 0; w < costs.lone.device.size(); ++w) {
    const double slow = slowdowns.device[w];
    const double one = slow * costs.lone.device[w], all = slow * costs.full.device[w];
    halves.one_step += at(one, all, streams);
    // The other half is elsewhere meanwhile.
    halves.two_steps = std::max(halves.two_steps, 2.0 * at(one, all, half));
  }
  return halves;
}

bool HasHalves(const PlacementCosts& costs) {
  return costs.streams >= 2 && costs.lone.device.size() >= 2;
}

}  // namespace

double StepSeconds::Total() const { return std::accumulate(device.begin(), device.end(), other); }

double Slowed(const StepSeconds& seconds, const Slowdowns& slowdowns) {
  TANDEM_CHECK(seconds.device.size() == slowdowns.device.size());
  return std::inner_product(seconds.device.begin(), seconds.device.end(), slowdowns.device.begin(),
                            seconds.other * slowdowns.other);
}

double DecodeRate(const PlacementCosts& costs, const ReferenceLoad& load,
                  const Slowdowns& slowdowns) {
  const double one_step = Slowed(Decoding(costs, load), slowdowns);
  if (!costs.two_at_once || load.streams < 2 || !HasHalves(costs)) {
    return Streams(costs, load) / one_step;
  }
  const Halves halves = HalvesOf(costs, costs.streams, slowdowns);
  return Streams(costs, load) / (halves.Pay() ? halves.two_steps : one_step);
}

double PromptRate(const PlacementCosts& costs, const ReferenceLoad& load,
                  const Slowdowns& slowdowns) {
  const double per_row = Slowed(costs.prompt, slowdowns) / costs.prompt_rows;
  if (!costs.two_at_once) return 1.0 / per_row;
  double busiest = 0.0;  // device, for a row
  for (size_t w = 0; w < costs.prompt.device.size(); ++w) {
    busiest = std::max(busiest, costs.prompt.device[w] * slowdowns.device[w] / costs.prompt_rows);
  }
  // Of two chunks under way none waits for a third.
  const double overlapped = std::max(busiest, per_row / 2.0);
  if (load.streams > 1) return 1.0 / overlapped;
  const uint32_t first = std::min(load.chunk_rows, load.prompt_tokens);
  return load.prompt_tokens / (first * per_row + (load.prompt_tokens - first) * overlapped);
}

double RequestSeconds(const PlacementCosts& costs, const ReferenceLoad& load,
                      const Slowdowns& slowdowns) {
  const double prompt = load.prompt_tokens / PromptRate(costs, load, slowdowns);
  const double answer = load.answer_tokens / DecodeRate(costs, load, slowdowns);
  if (costs.prompts_apart && load.streams > 1) return std::max(prompt, answer);
  return prompt + answer;
}

bool PowerMeasured(const PlacementCosts& costs) {
  return std::ranges::all_of(StepsOf(costs), [](const StepSeconds* step) {
    return step->watts.size() == step->device.size();
  });
}

std::vector<size_t> WorkersWithoutPower(const PlacementCosts& costs) {
  std::vector<size_t> without;
  for (size_t w = 0; w < costs.lone.device.size(); ++w) {
    const bool missing = std::ranges::any_of(StepsOf(costs), [w](const StepSeconds* step) {
      return Uses(*step, w) && step->watts[w] <= 0.0;
    });
    if (missing) without.push_back(w);
  }
  return without;
}

std::optional<double> TokenJoules(const PlacementCosts& costs, const ReferenceLoad& load,
                                  const Slowdowns& slowdowns) {
  if (!HasPower(costs)) return std::nullopt;
  return Joules(Decoding(costs, load), slowdowns) / Streams(costs, load);
}

std::optional<double> RequestJoules(const PlacementCosts& costs, const ReferenceLoad& load,
                                    const Slowdowns& slowdowns) {
  const std::optional<double> token = TokenJoules(costs, load, slowdowns);
  if (!token.has_value()) return std::nullopt;
  const double prompt = Joules(costs.prompt, slowdowns) / costs.prompt_rows;
  return load.prompt_tokens * prompt + load.answer_tokens * *token;
}

bool HalvesPay(const PlacementCosts& costs, uint32_t streams) {
  if (streams < 2 || !HasHalves(costs)) return false;
  return HalvesOf(costs, streams, {.device = std::vector<double>(costs.lone.device.size(), 1.0)})
      .Pay();
}

}  // namespace tandem::gateway

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

// What a step of some of the measured streams takes.  REQUIRES costs of two streams at least.
StepSeconds StepOf(const PlacementCosts& costs, uint32_t streams) {
  // On the line between what one stream and all of them take.
  const double part = (streams - 1.0) / (costs.streams - 1.0);
  const auto at = [part](double one, double all) { return one + (all - one) * part; };
  StepSeconds step{.other = at(costs.lone.other, costs.full.other)};
  for (size_t w = 0; w < costs.lone.device.size(); ++w) {
    step.device.push_back(at(costs.lone.device[w], costs.full.device[w]));
  }
  return step;
}

bool HasLanes(const PlacementCosts& costs) {
  return costs.streams >= 2 && costs.lone.device.size() >= 2;
}

// Lanes, and seconds in which every stream has a token with them.
struct Lanes {
  uint32_t count = 1;
  double seconds = 0.0;
};

// A step waits for the one before it in its lane, and on each device for those of the other lanes.
// REQUIRES HasLanes.
Lanes BestLanes(const PlacementCosts& costs, uint32_t streams, const Slowdowns& slowdowns) {
  Lanes best{.seconds = Slowed(StepOf(costs, streams), slowdowns)};
  const uint32_t most = std::min(MostLanes(costs.lone.device.size()), streams);
  for (uint32_t lanes = 2; lanes <= most; ++lanes) {
    const StepSeconds step = StepOf(costs, (streams + lanes - 1) / lanes);
    double seconds = Slowed(step, slowdowns);
    for (size_t w = 0; w < step.device.size(); ++w) {
      seconds = std::max(seconds, lanes * step.device[w] * slowdowns.device[w]);
    }
    if (seconds < 0.95 * best.seconds) best = {.count = lanes, .seconds = seconds};
  }
  return best;
}

}  // namespace

uint32_t MostLanes(size_t num_devices) {
  return static_cast<uint32_t>(std::min<size_t>(num_devices + 1, 4));
}

double StepSeconds::Total() const { return std::accumulate(device.begin(), device.end(), other); }

double Slowed(const StepSeconds& seconds, const Slowdowns& slowdowns) {
  TANDEM_CHECK(seconds.device.size() == slowdowns.device.size());
  return std::inner_product(seconds.device.begin(), seconds.device.end(), slowdowns.device.begin(),
                            seconds.other * slowdowns.other);
}

double DecodeRate(const PlacementCosts& costs, const ReferenceLoad& load,
                  const Slowdowns& slowdowns) {
  if (costs.lanes && load.streams > 1 && HasLanes(costs)) {
    return costs.streams / BestLanes(costs, costs.streams, slowdowns).seconds;
  }
  return Streams(costs, load) / Slowed(Decoding(costs, load), slowdowns);
}

double PromptRate(const PlacementCosts& costs, const ReferenceLoad& load,
                  const Slowdowns& slowdowns) {
  const double per_row = Slowed(costs.prompt, slowdowns) / costs.prompt_rows;
  if (!costs.lanes) return 1.0 / per_row;
  double busiest = 0.0;  // device, for a row
  uint32_t num_devices = 0;
  for (size_t w = 0; w < costs.prompt.device.size(); ++w) {
    busiest = std::max(busiest, costs.prompt.device[w] * slowdowns.device[w] / costs.prompt_rows);
    num_devices += Uses(costs.prompt, w) ? 1 : 0;
  }
  // One chunk more waits until one of those under way has ended.
  const uint32_t at_once = std::min(MostLanes(num_devices), num_devices);
  const double overlapped = std::max(busiest, per_row / at_once);
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

uint32_t LanesFor(const PlacementCosts& costs, uint32_t streams) {
  if (streams < 2 || !HasLanes(costs)) return 1;
  return BestLanes(costs, streams, {.device = std::vector<double>(costs.lone.device.size(), 1.0)})
      .count;
}

}  // namespace tandem::gateway

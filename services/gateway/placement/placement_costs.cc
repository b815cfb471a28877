#include "services/gateway/placement/placement_costs.h"

#include <algorithm>
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

}  // namespace

double StepSeconds::Total() const { return std::accumulate(device.begin(), device.end(), other); }

double Slowed(const StepSeconds& seconds, const Slowdowns& slowdowns) {
  TANDEM_CHECK(seconds.device.size() == slowdowns.device.size());
  return std::inner_product(seconds.device.begin(), seconds.device.end(), slowdowns.device.begin(),
                            seconds.other * slowdowns.other);
}

double DecodeRate(const PlacementCosts& costs, const ReferenceLoad& load,
                  const Slowdowns& slowdowns) {
  return Streams(costs, load) / Slowed(Decoding(costs, load), slowdowns);
}

double PromptRate(const PlacementCosts& costs, const Slowdowns& slowdowns) {
  return costs.prompt_rows / Slowed(costs.prompt, slowdowns);
}

double RequestSeconds(const PlacementCosts& costs, const ReferenceLoad& load,
                      const Slowdowns& slowdowns) {
  const double prompt = load.prompt_tokens / PromptRate(costs, slowdowns);
  const double answer = load.answer_tokens / DecodeRate(costs, load, slowdowns);
  if (costs.prompts_apart && load.streams > 1) return std::max(prompt, answer);
  return prompt + answer;
}

bool HalvesPay(const PlacementCosts& costs, uint32_t streams) {
  if (streams < 2 || costs.streams < 2 || costs.lone.device.size() < 2) return false;
  // On the line between what one stream and all of them take.
  const auto at = [&](double one, double all, double count) {
    return one + (all - one) * (count - 1.0) / (costs.streams - 1.0);
  };
  const double half = (streams + 1) / 2;
  double whole = at(costs.lone.other, costs.full.other, streams);
  double busiest = 0.0;  // device, for a half; the other half is elsewhere meanwhile
  for (size_t w = 0; w < costs.lone.device.size(); ++w) {
    whole += at(costs.lone.device[w], costs.full.device[w], streams);
    busiest = std::max(busiest, at(costs.lone.device[w], costs.full.device[w], half));
  }
  return 2.0 * busiest < 0.95 * whole;
}

}  // namespace tandem::gateway

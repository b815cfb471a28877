#include "services/gateway/placement/placement_costs.h"

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
  return load.prompt_tokens / PromptRate(costs, slowdowns) +
         load.answer_tokens / DecodeRate(costs, load, slowdowns);
}

}  // namespace tandem::gateway

#include "services/gateway/api/penalty_window.h"

#include <limits>

namespace tandem::gateway {

void ReadPenaltyWindow(JsonFields& fields, bool by_default, v1::SamplingParams& params) {
  const auto window = fields.Integer("repeat_last_n", -1, std::numeric_limits<int32_t>::max());
  if (window.has_value()) {
    if (*window >= 0) params.set_penalty_window(static_cast<uint32_t>(*window));
  } else if (by_default) {
    params.set_penalty_window(kDefaultPenaltyWindow);
  }
}

}  // namespace tandem::gateway

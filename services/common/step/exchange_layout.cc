#include "services/common/step/exchange_layout.h"

#include <bit>

namespace tandem {
namespace {

uint64_t RowBytes(Port port, const ModelConfig& config) {
  switch (port) {
    case Port::kResidual:
    case Port::kProjection:
      return uint64_t{config.hidden_dim} * sizeof(float);
    case Port::kQ:
    case Port::kAttention:
      return uint64_t{config.q_dim()} * sizeof(uint16_t);
    case Port::kK:
    case Port::kV:
      return uint64_t{config.kv_dim()} * sizeof(uint16_t);
  }
  return 0;
}

}  // namespace

const ExchangeArea& ExchangeLayout::port(Port p) const {
  return ports[std::countr_zero(static_cast<uint32_t>(p))];
}

ExchangeLayout MakeExchangeLayout(const ModelConfig& config, const StepLimits& limits,
                                  uint32_t num_lanes) {
  ExchangeLayout layout;
  layout.num_lanes = num_lanes;
  uint64_t offset = 0;
  const auto place = [&offset](uint64_t bytes, uint64_t row_bytes) {
    const ExchangeArea area{offset, bytes, row_bytes};
    offset += (bytes + kAreaAlignment - 1) / kAreaAlignment * kAreaAlignment;
    return area;
  };
  layout.step = place(StepAreaBytes(limits), 0);
  for (int bit = 0; bit < kNumPorts; ++bit) {
    const uint64_t row_bytes = RowBytes(static_cast<Port>(1u << bit), config);
    layout.ports[bit] = place(row_bytes * limits.max_rows, row_bytes);
  }
  layout.candidates = place(sizeof(OutputResult) * limits.max_outputs, sizeof(OutputResult));
  layout.guesses = place(sizeof(uint32_t) * limits.max_outputs, sizeof(uint32_t));
  const uint64_t logit_row_bytes = uint64_t{config.vocab_size} * sizeof(float);
  layout.logits = place(logit_row_bytes * limits.max_logit_outputs, logit_row_bytes);
  const uint64_t hidden_bytes = uint64_t{config.hidden_dim} * sizeof(float);
  layout.pooled = place(hidden_bytes * limits.max_sequences, hidden_bytes);
  const uint64_t mask_bytes = uint64_t{MaskWords(config.vocab_size)} * sizeof(uint32_t);
  layout.masks = place(mask_bytes * limits.max_sequences, mask_bytes);
  uint64_t pixel_bytes = 0, num_soft_tokens = limits.max_pictures > 0 ? limits.max_rows : 0;
  if (limits.vision()) {
    pixel_bytes =
        3 * uint64_t{config.vision->image_size} * config.vision->image_size * sizeof(float);
    num_soft_tokens = uint64_t{limits.max_pictures} * limits.picture_rows;
  }
  layout.pixels = place(limits.vision() ? pixel_bytes * limits.max_pictures : 0, pixel_bytes);
  layout.soft_tokens = place(hidden_bytes * num_soft_tokens, hidden_bytes);
  layout.lane_bytes = offset;
  layout.kv = {.offset = num_lanes * layout.lane_bytes, .bytes = limits.kv_area_bytes};
  return layout;
}

}  // namespace tandem

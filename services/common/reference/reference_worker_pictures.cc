// Pictures: Vision, rows that are given, and which rows see which.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "services/common/reference/reference_worker.h"

namespace tandem::reference {

void ReferenceWorker::TakeSoftTokens(const SegmentRun& run, Plan& plan) {
  const Exchange& exchange = *plan.load.exchange;
  const ExchangeArea& area = exchange.layout.soft_tokens;
  for (const PictureEntry& picture : run.step->pictures) {
    std::memcpy(plan.rows.residual.data() +
                    size_t{picture.first_row} * plan.parameters->config().hidden_dim,
                exchange.Area(run.lane, area).data() + picture.first_row * area.row_bytes,
                picture.num_rows * area.row_bytes);
  }
}

void ReferenceWorker::EncodePictures(const SegmentRun& run, const Plan& plan) {
  const Exchange& exchange = *plan.load.exchange;
  const ExchangeArea& pixels = exchange.layout.pixels;
  const ExchangeArea& soft_tokens = exchange.layout.soft_tokens;
  std::vector<float> picture(pixels.row_bytes / sizeof(float));
  for (size_t p = 0; p < run.step->pictures.size(); ++p) {
    std::memcpy(picture.data(), exchange.Area(run.lane, pixels).data() + p * pixels.row_bytes,
                pixels.row_bytes);
    const std::vector<float> encoded = plan.encoder->Encode(picture);
    std::memcpy(exchange.Area(run.lane, soft_tokens).data() +
                    run.step->pictures[p].first_row * soft_tokens.row_bytes,
                encoded.data(), encoded.size() * sizeof(float));
  }
}

std::vector<std::pair<uint32_t, uint32_t>> ReferenceWorker::Visible(const ModelConfig& config,
                                                                    uint32_t layer_idx,
                                                                    const StepBatch& step) {
  std::vector<std::pair<uint32_t, uint32_t>> visible;
  visible.reserve(step.rows.size());
  for (const RowEntry& row : step.rows) {
    visible.emplace_back(FirstVisible(config, layer_idx, row.position), row.position);
  }
  for (const PictureEntry& picture : step.pictures) {
    const uint32_t picture_rows = config.vision->tokens_per_image;
    const uint32_t first = FirstPosition(picture, step.rows, picture_rows);
    for (uint32_t r = picture.first_row; r < picture.first_row + picture.num_rows; ++r) {
      visible[r].first = std::min(visible[r].first, first);
      visible[r].second = first + picture_rows - 1;
    }
  }
  return visible;
}

}  // namespace tandem::reference

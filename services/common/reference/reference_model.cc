#include "services/common/reference/reference_model.h"

#include <algorithm>
#include <numeric>

#include "services/common/base/check.h"
#include "services/common/reference/ops.h"

namespace tandem::reference {
namespace {

size_t NumRows(const PictureRows& picture, const ModelConfig& config) {
  return picture.embedding.size() / config.hidden_dim;
}

// Positions [begin, end) that a row sees.
struct Visible {
  size_t begin = 0;
  size_t end = 0;
};

Visible VisibleTo(size_t row, const ModelConfig& config, uint32_t layer_idx,
                  std::span<const PictureRows> pictures) {
  Visible visible{FirstVisible(config, layer_idx, static_cast<uint32_t>(row)), row + 1};
  for (const PictureRows& picture : pictures) {
    const size_t end = picture.first + NumRows(picture, config);
    if (row < picture.first || row >= end) continue;
    visible.begin = std::min(visible.begin, picture.first);
    visible.end = end;
  }
  return visible;
}

}  // namespace

ReferenceModel::ReferenceModel(const WeightSet& weights, ReferenceOptions options)
    : parameters_(weights), options_(options) {}

void ReferenceModel::AttendSequence(uint32_t layer_idx, Activations& rows,
                                    std::span<const PictureRows> pictures) const {
  const size_t q_dim = config().q_dim();
  const size_t num_rows = rows.q.size() / q_dim;
  std::vector<const float*> keys(num_rows), values(num_rows);
  for (size_t p = 0; p < num_rows; ++p) {
    keys[p] = &rows.k[p * config().kv_dim()];
    values[p] = &rows.v[p * config().kv_dim()];
  }
  rows.attention.resize(rows.q.size());
  ParallelFor(options_.num_threads, num_rows, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      const Visible visible = VisibleTo(r, config(), layer_idx, pictures);
      const size_t count = visible.end - visible.begin;
      AttendRow(config(), std::span(rows.q).subspan(r * q_dim, q_dim),
                std::span(keys).subspan(visible.begin, count),
                std::span(values).subspan(visible.begin, count),
                std::span(rows.attention).subspan(r * q_dim, q_dim));
    }
  });
}

std::vector<float> ReferenceModel::Logits(std::span<const uint32_t> tokens,
                                          std::span<const PictureRows> pictures,
                                          const Observer& observer) const {
  std::vector<uint32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0u);
  Activations rows;
  const auto done = [&](StageKind kind, uint32_t layer_idx) {
    if (observer) observer({kind, layer_idx}, rows);
  };
  const auto exchange = [this](std::vector<float>& values) {
    if (options_.half_precision_exchange) RoundToHalf(values);
  };
  Embed(parameters_, tokens, rows);
  for (const PictureRows& picture : pictures) {
    TANDEM_CHECK(picture.first + NumRows(picture, config()) <= tokens.size());
    std::copy(picture.embedding.begin(), picture.embedding.end(),
              rows.residual.begin() + static_cast<int64_t>(picture.first * config().hidden_dim));
  }
  done(StageKind::kEmbed, 0);
  for (uint32_t layer = 0; layer < config().num_layers; ++layer) {
    Qkv(parameters_, layer, positions, options_.num_threads, rows);
    exchange(rows.q);
    exchange(rows.k);
    exchange(rows.v);
    done(StageKind::kQkv, layer);
    AttendSequence(layer, rows, pictures);
    exchange(rows.attention);
    done(StageKind::kAttend, layer);
    Out(parameters_, layer, options_.num_threads, rows);
    done(StageKind::kOut, layer);
    Ffn(parameters_, layer, options_.num_threads, rows);
    done(StageKind::kFfn, layer);
  }
  return Head(parameters_, rows.residual, options_.num_threads);
}

}  // namespace tandem::reference

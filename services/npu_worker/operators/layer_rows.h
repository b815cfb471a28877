// What the stages Qkv and Ffn share: rows of float32 between the exchange region and an array, and the
// norms' weights of a layer.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/weights/weight_set.h"
#include "services/npu_worker/operators/opened_operator.h"
#include "services/npu_worker/operators/row_command.h"

namespace tandem::npu {

// Numbers of a row as an array has it: filled up with zeros.
constexpr uint32_t PaddedWidth(uint32_t width) {
  return (width + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
}

// Rows [max_rows][PaddedWidth(width)], float32.  Single-thread.
class LayerRows {
 public:
  // `argument`: of the row functions.  RESOURCE_EXHAUSTED: memory.
  static absl::StatusOr<LayerRows> Create(const OpenedOperator& rows, const char* argument,
                                          uint32_t max_rows, uint32_t width);

  const NpuBuffer& buffer() const { return buffer_; }
  uint32_t stride() const { return PaddedWidth(width_); }  // words
  // Hands over `values`, [num_rows][width], as the first rows, and zeros behind each: what an array left
  // there of another sequence could be NaN.  Or takes the values back.  Errors of NpuBuffer's Sync.
  absl::Status Set(std::span<const float> values) const;
  absl::Status Get(std::span<float> values) const;

 private:
  std::span<float> Row(size_t row) const;  // all of it

  NpuBuffer buffer_;
  uint32_t width_ = 0;
};

// The weights of norms of a layer, float32, one after another, each in PaddedWidth of its numbers.
// RESOURCE_EXHAUSTED: memory.
absl::StatusOr<NpuBuffer> MakeNormWeights(const OpenedOperator& rows, const WeightSet& weights,
                                          uint32_t layer_idx,
                                          std::initializer_list<WeightRole> roles);

}  // namespace tandem::npu

#include "services/npu_worker/operators/layer_rows.h"

#include <algorithm>
#include <vector>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/common/weights/dequantize.h"

namespace tandem::npu {

absl::StatusOr<LayerRows> LayerRows::Create(const OpenedOperator& rows, const char* argument,
                                            uint32_t max_rows, uint32_t width) {
  LayerRows made;
  made.width_ = width;
  const uint64_t words = uint64_t{PaddedJobRows(max_rows)} * PaddedWidth(width);
  TANDEM_ASSIGN_OR_RETURN(made.buffer_, RowCommand::MakeBuffer(*rows.kernel, *rows.op, argument,
                                                               words * sizeof(float)));
  return made;
}

std::span<float> LayerRows::Row(size_t row) const {
  return {reinterpret_cast<float*>(buffer_.data()) + row * stride(), stride()};
}

absl::Status LayerRows::Set(std::span<const float> values) const {
  const size_t num_rows = values.size() / width_;
  TANDEM_CHECK(values.size() == num_rows * width_);
  for (size_t row = 0; row < num_rows; ++row) {
    const auto rest = std::ranges::copy(values.subspan(row * width_, width_), Row(row).begin()).out;
    std::ranges::fill(rest, Row(row).end(), 0.0f);
  }
  return buffer_.SyncToDevice(0, num_rows * stride() * sizeof(float));
}

absl::Status LayerRows::Get(std::span<float> values) const {
  const size_t num_rows = values.size() / width_;
  TANDEM_CHECK(values.size() == num_rows * width_);
  TANDEM_RETURN_IF_ERROR(buffer_.SyncFromDevice(0, num_rows * stride() * sizeof(float)));
  for (size_t row = 0; row < num_rows; ++row) {
    std::ranges::copy(Row(row).first(width_),
                      values.begin() + static_cast<std::ptrdiff_t>(row * width_));
  }
  return absl::OkStatus();
}

absl::StatusOr<NpuBuffer> MakeNormWeights(const OpenedOperator& rows, const WeightSet& weights,
                                          uint32_t layer_idx,
                                          std::initializer_list<WeightRole> roles) {
  std::vector<float> numbers;
  for (const WeightRole role : roles) {
    const std::vector<float> norm = DequantizeTensor(weights, *weights.Find(role, layer_idx));
    numbers.insert(numbers.end(), norm.begin(), norm.end());
    numbers.resize(numbers.size() + PaddedWidth(static_cast<uint32_t>(norm.size())) - norm.size());
  }
  const size_t bytes = numbers.size() * sizeof(float);
  TANDEM_ASSIGN_OR_RETURN(NpuBuffer buffer,
                          RowCommand::MakeBuffer(*rows.kernel, *rows.op, "weights", bytes));
  std::ranges::copy(numbers, reinterpret_cast<float*>(buffer.data()));
  TANDEM_RETURN_IF_ERROR(buffer.SyncToDevice(0, bytes));
  return buffer;
}

}  // namespace tandem::npu

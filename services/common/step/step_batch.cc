#include "services/common/step/step_batch.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/common/step/step_checks.h"

namespace tandem {
namespace {

size_t BytesFor(uint64_t rows, uint64_t sequences, uint64_t outputs, uint64_t table_len,
                uint64_t draws, uint64_t pooled, uint64_t pictures) {
  return sizeof(StepHeader) + rows * sizeof(RowEntry) + sequences * sizeof(SequenceEntry) +
         outputs * sizeof(OutputEntry) + table_len * sizeof(uint32_t) + draws * sizeof(DrawEntry) +
         pooled * sizeof(uint32_t) + pictures * sizeof(PictureEntry);
}

StepBatch View(const StepHeader& header, const std::byte* data) {
  StepBatch batch;
  batch.header = header;
  const std::byte* p = data + sizeof(StepHeader);
  batch.rows = {reinterpret_cast<const RowEntry*>(p), header.num_rows};
  p += header.num_rows * sizeof(RowEntry);
  batch.sequences = {reinterpret_cast<const SequenceEntry*>(p), header.num_sequences};
  p += header.num_sequences * sizeof(SequenceEntry);
  batch.outputs = {reinterpret_cast<const OutputEntry*>(p), header.num_outputs};
  p += header.num_outputs * sizeof(OutputEntry);
  batch.block_table = {reinterpret_cast<const uint32_t*>(p), header.table_len};
  p += header.table_len * sizeof(uint32_t);
  batch.draws = {reinterpret_cast<const DrawEntry*>(p), header.num_draws};
  p += header.num_draws * sizeof(DrawEntry);
  batch.pooled = {reinterpret_cast<const uint32_t*>(p), header.num_pooled};
  p += header.num_pooled * sizeof(uint32_t);
  batch.pictures = {reinterpret_cast<const PictureEntry*>(p), header.num_pictures};
  return batch;
}

}  // namespace

StepLimits VisionLimits(uint32_t max_pictures, uint32_t picture_rows) {
  return {.max_pictures = max_pictures, .picture_rows = picture_rows};
}

size_t StepAreaBytes(const StepLimits& limits) {
  return BytesFor(limits.max_rows, limits.max_sequences, limits.max_outputs, limits.max_table_len,
                  limits.max_sequences, limits.max_sequences, limits.max_pictures);
}

size_t StepBytes(const StepHeader& header) {
  return BytesFor(header.num_rows, header.num_sequences, header.num_outputs, header.table_len,
                  header.num_draws, header.num_pooled, header.num_pictures);
}

size_t BlockTableOffset(const StepHeader& header) {
  return BytesFor(header.num_rows, header.num_sequences, header.num_outputs, 0, 0, 0, 0);
}

absl::StatusOr<StepBatch> ParseStep(std::span<const std::byte> area, const StepLimits& limits,
                                    std::vector<std::byte>& storage) {
  if (area.size() < sizeof(StepHeader)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step: area of %d bytes is shorter than its header", area.size()));
  }
  StepHeader header;
  std::memcpy(&header, area.data(), sizeof(header));
  TANDEM_RETURN_IF_ERROR(CheckStepHeader(header, limits));
  const size_t bytes = StepBytes(header);
  if (bytes > area.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step: %d bytes in an area of %d", bytes, area.size()));
  }
  if (storage.size() < bytes) storage.resize(bytes);
  std::memcpy(storage.data(), area.data(), bytes);
  const StepBatch batch = View(header, storage.data());
  TANDEM_RETURN_IF_ERROR(CheckStep(batch, limits));
  return batch;
}

size_t WriteStep(const StepBatch& batch, std::span<std::byte> area) {
  const size_t bytes = StepBytes(batch.header);
  TANDEM_CHECK(bytes <= area.size());
  TANDEM_CHECK(batch.rows.size() == batch.header.num_rows);
  TANDEM_CHECK(batch.sequences.size() == batch.header.num_sequences);
  TANDEM_CHECK(batch.outputs.size() == batch.header.num_outputs);
  TANDEM_CHECK(batch.block_table.size() == batch.header.table_len);
  TANDEM_CHECK(batch.draws.size() == batch.header.num_draws);
  TANDEM_CHECK(batch.pooled.size() == batch.header.num_pooled);
  TANDEM_CHECK(batch.pictures.size() == batch.header.num_pictures);
  std::byte* p = area.data();
  const auto put = [&p](const void* data, size_t n) {
    if (n > 0) std::memcpy(p, data, n);
    p += n;
  };
  put(&batch.header, sizeof(StepHeader));
  put(batch.rows.data(), batch.rows.size_bytes());
  put(batch.sequences.data(), batch.sequences.size_bytes());
  put(batch.outputs.data(), batch.outputs.size_bytes());
  put(batch.block_table.data(), batch.block_table.size_bytes());
  put(batch.draws.data(), batch.draws.size_bytes());
  put(batch.pooled.data(), batch.pooled.size_bytes());
  put(batch.pictures.data(), batch.pictures.size_bytes());
  return bytes;
}

}  // namespace tandem

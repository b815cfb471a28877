#include "services/gpu_worker/stages/vision_buffers.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/common/tensor/quant.h"
#include "services/common/weights/dequantize.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/stages/allocator.h"

namespace tandem::gpu {
namespace {

using vulkan::Buffer;
using vulkan::MemoryKind;

uint32_t NumBlocks(const VisionConfig& config) {
  return DivideUp(config.num_patches(), kVisionBlockTokens);
}

// [text_hidden_dim, hidden_dim], packed, of the model's [hidden_dim, text_hidden_dim].
std::vector<std::byte> TurnedProjection(const WeightSet& weights, DType dtype) {
  const VisionConfig& config = *weights.config().vision;
  const uint64_t rows = config.text_hidden_dim, cols = config.hidden_dim;
  const std::vector<float> values =
      DequantizeTensor(weights, *weights.Find(ToWeightRole(VisionRole::kProjection)));
  std::vector<std::byte> packed(ShardBytes(dtype, rows, cols));
  std::vector<float> row(cols);
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < cols; ++c) row[c] = values[c * rows + r];
    QuantizePackedRow(dtype, row, RowInShard(dtype, rows, cols, packed.data(), r));
  }
  return packed;
}

}  // namespace

absl::Status VisionBuffers::MakeScratch(const vulkan::Device& device, const VisionConfig& config,
                                        ActivationFormat format) {
  const uint64_t rows = config.num_patches(), hidden = config.hidden_dim;
  const auto activations = [&](uint64_t cols) { return rows * ActivationRowBytes(format, cols); };
  const uint64_t page_bytes = uint64_t{NumBlocks(config)} * kVisionBlockTokens * hidden * 2;
  Allocator make(device);
  make.Make(patches, activations(PackedColumns(config.patch_dim())), MemoryKind::kDevice,
            "patches of a picture");
  make.Make(residual, rows * hidden * 4, MemoryKind::kDevice, "residual of a picture");
  make.Make(normed, activations(hidden), MemoryKind::kDevice, "normed patches");
  const uint64_t products = std::max<uint64_t>(3 * hidden, config.ffn_dim);
  make.Make(wide, rows * (format == ActivationFormat::kF16 ? hidden : products) * 4,
            MemoryKind::kDevice, "products of a picture");
  make.Make(sums, rows * hidden * 4, MemoryKind::kDevice, "sums of a picture");
  make.Make(q, rows * hidden * 2, MemoryKind::kDevice, "q of a picture");
  make.Make(k, page_bytes, MemoryKind::kDevice, "k of a picture");
  make.Make(v, page_bytes, MemoryKind::kDevice, "v of a picture");
  make.Make(attention, rows * hidden * 2, MemoryKind::kDevice, "attention of a picture");
  make.Make(activated, activations(PackedColumns(config.ffn_dim)), MemoryKind::kDevice,
            "activated patches");
  make.Make(pooled, config.tokens_per_image * ActivationRowBytes(format, hidden),
            MemoryKind::kDevice, "pooled patches");
  make.Make(counts, 2 * sizeof(uint32_t), MemoryKind::kUpload, "counts of a picture");
  return make.status();
}

absl::Status VisionBuffers::WriteStepOfPatches(const vulkan::Device& device, const Tuning& tuning,
                                               const VisionConfig& config) {
  const uint32_t rows = config.num_patches();
  const uint32_t numbers[] = {rows, config.tokens_per_image};
  std::memcpy(counts.mapped().data(), numbers, sizeof(numbers));
  std::vector<RowEntry> entries(rows);
  for (uint32_t r = 0; r < rows; ++r) entries[r].position = r;
  const SequenceEntry sequence{.first_row = 0, .num_rows = rows};
  const PictureEntry picture{.first_row = 0, .num_rows = rows};
  std::vector<uint32_t> table(NumBlocks(config));
  std::iota(table.begin(), table.end(), 0u);
  StepBatch batch;
  batch.header.num_rows = rows;
  batch.header.num_sequences = batch.header.num_pictures = 1;
  batch.header.table_len = static_cast<uint32_t>(table.size());
  batch.rows = entries;
  batch.sequences = {&sequence, 1};
  batch.pictures = {&picture, 1};
  batch.block_table = table;
  const uint32_t tile_rows =
      MakeTiledShape(tuning, config.num_heads, config.num_heads, config.head_dim()).tile_rows;
  const AttentionStepLayout layout({.max_rows = rows, .max_pictures = 1, .picture_rows = rows},
                                   {.tile_rows = tile_rows});
  Allocator make(device);
  make.Make(step, StepBytes(batch.header), MemoryKind::kUpload, "step of a picture");
  if (tile_rows > 0) {
    make.Make(attention_step, layout.bytes, MemoryKind::kUpload, "attention step of a picture");
  }
  TANDEM_RETURN_IF_ERROR(make.status());
  WriteStep(batch, step.mapped());
  if (tile_rows == 0) return absl::OkStatus();
  WriteAttentionStep(batch, layout, attention_step.mapped());
  tiles = attention_step.address() + layout.tiles;
  return absl::OkStatus();
}

absl::Status VisionBuffers::UploadWeights(const vulkan::Device& device, vulkan::Uploader& uploader,
                                          const WeightSet& weights, ActivationFormat format) {
  const VisionConfig& config = *weights.config().vision;
  const DType dtype = format == ActivationFormat::kF16 ? DType::kF16 : DType::kF32;
  const std::vector<float> table =
      DequantizeTensor(weights, *weights.Find(ToWeightRole(VisionRole::kPositions)));
  const std::vector<std::byte> packed = TurnedProjection(weights, dtype);
  Allocator make(device);
  make.Make(positions, table.size() * sizeof(float), MemoryKind::kDevice, "positions of patches");
  make.Make(projection_bytes, packed.size(), MemoryKind::kDevice, "projection of pictures");
  TANDEM_RETURN_IF_ERROR(make.status());
  TANDEM_RETURN_IF_ERROR(uploader.Upload(std::as_bytes(std::span(table)), positions, 0));
  TANDEM_RETURN_IF_ERROR(uploader.Upload(packed, projection_bytes, 0));
  projection = {dtype, config.text_hidden_dim, config.hidden_dim, {}};
  DeviceShard& shard = projection.shards.emplace_back();
  shard.num_rows = config.text_hidden_dim;
  const std::vector<Plane> planes = PlanesOf(dtype, config.text_hidden_dim, config.hidden_dim);
  for (size_t p = 0; p < planes.size(); ++p) {
    shard.plane[p] = projection_bytes.address() + planes[p].offset;
  }
  return uploader.Finish();
}

absl::StatusOr<std::unique_ptr<VisionBuffers>> VisionBuffers::Create(const vulkan::Device& device,
                                                                     vulkan::Uploader& uploader,
                                                                     const Tuning& tuning,
                                                                     const WeightSet& weights,
                                                                     ActivationFormat format) {
  const VisionConfig& config = *weights.config().vision;
  auto buffers = std::make_unique<VisionBuffers>();
  const vulkan::FinishUploads before_they_go(uploader);
  TANDEM_RETURN_IF_ERROR(buffers->MakeScratch(device, config, format));
  TANDEM_RETURN_IF_ERROR(buffers->WriteStepOfPatches(device, tuning, config));
  if (format == ActivationFormat::kF16) {
    const std::vector<std::byte> zeros(kMatrixMaxTiles * sizeof(uint32_t));
    Allocator make(device);
    make.Make(buffers->matrix_sums, kMatrixSumsBytes, MemoryKind::kDevice, "matrix sums");
    make.Make(buffers->matrix_arrivals, zeros.size(), MemoryKind::kDevice, "matrix arrivals");
    TANDEM_RETURN_IF_ERROR(make.status());
    TANDEM_RETURN_IF_ERROR(uploader.Upload(zeros, buffers->matrix_arrivals, 0));
  }
  // What a kernel leaves out reads as zero, not as what was there: K and V of the last block, what
  // fills up the rows of `activated`.
  for (const Buffer* const buffer : {&buffers->k, &buffers->v, &buffers->activated}) {
    TANDEM_RETURN_IF_ERROR(uploader.Clear(*buffer));
  }
  TANDEM_RETURN_IF_ERROR(buffers->UploadWeights(device, uploader, weights, format));
  return buffers;
}

}  // namespace tandem::gpu

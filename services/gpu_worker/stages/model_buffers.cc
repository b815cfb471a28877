#include "services/gpu_worker/stages/model_buffers.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/tensor/kv_format.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/matvec_launches.h"
#include "services/gpu_worker/stages/allocator.h"

namespace tandem::gpu {
namespace {

using vulkan::Buffer;
using vulkan::MemoryKind;

constexpr uint64_t kMaxLogitBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxPartialBytes = uint64_t{128} << 20;

// Float32 rows; few rows may come as partial sums of split-K.
uint64_t SplitKBytes(const Tuning& tuning, uint64_t rows, uint64_t cols) {
  const uint32_t most =
      std::max(tuning.matvec_max_rows, tuning.matrix.narrow ? tuning.matrix.narrow_max_rows : 0);
  const uint64_t few = std::min<uint64_t>(std::bit_ceil(rows), most);
  return std::max(rows, few * kMaxSplitK) * cols * 4;
}

absl::Status MakeLane(const vulkan::Device& device, const Tuning& tuning, const ModelLoad& load,
                      const std::set<StageKind>& kinds, uint32_t head_tile, LaneBuffers& lane) {
  const ModelConfig& config = load.weights->config();
  const StepLimits& limits = load.limits;
  const uint64_t rows = limits.max_rows;
  const auto any = [&kinds](std::initializer_list<StageKind> wanted) {
    return std::any_of(wanted.begin(), wanted.end(),
                       [&kinds](StageKind kind) { return kinds.contains(kind); });
  };
  using enum StageKind;
  Allocator make(device);
  const uint64_t hidden_bytes = rows * config.hidden_dim * 4;
  if (any({kEmbed, kQkv, kFfn, kHead})) {
    make.Make(lane.residual, hidden_bytes, MemoryKind::kDevice, "residual");
    make.Make(lane.updated, uint64_t{config.hidden_dim} * 4, MemoryKind::kDevice, "residual");
  }
  if (any({kQkv, kFfn, kHead})) {
    make.Make(lane.normed, LargestActivationBytes(rows, config.hidden_dim), MemoryKind::kDevice,
              "normed");
  }
  if (any({kQkv})) {
    make.Make(lane.qkv, rows * config.qkv_dim() * 4, MemoryKind::kDevice, "qkv");
  }
  if (any({kQkv, kAttend})) {
    make.Make(lane.q, rows * config.q_dim() * 2, MemoryKind::kDevice, "q");
    make.Make(lane.k, rows * config.kv_dim() * 2, MemoryKind::kDevice, "k");
    make.Make(lane.v, rows * config.kv_dim() * 2, MemoryKind::kDevice, "v");
  }
  if (any({kAttend, kOut})) {
    make.Make(lane.attention, LargestActivationBytes(rows, config.q_dim()), MemoryKind::kDevice,
              "attention");
  }
  if (any({kOut, kFfn})) {
    make.Make(lane.projection, SplitKBytes(tuning, rows, config.hidden_dim), MemoryKind::kDevice,
              "projection");
  }
  if (any({kFfn})) {
    make.Make(lane.activated, LargestActivationBytes(rows, config.ffn_dim), MemoryKind::kDevice,
              "activated");
  }
  if (any({kHead})) {
    make.Make(lane.head_normed, LargestActivationBytes(head_tile, config.hidden_dim),
              MemoryKind::kDevice, "head input");
    make.Make(lane.logits, uint64_t{head_tile} * LogitStride(config.vocab_size) * 4,
              MemoryKind::kDevice, "logits");
    make.Make(lane.head_slices,
              uint64_t{head_tile} * SlicesOf(config.vocab_size).count * sizeof(OutputResult),
              MemoryKind::kDevice, "head slices");
  }
  return make.status();
}

// What the host writes or reads while another lane's step runs.
absl::Status MakeMapped(const vulkan::Device& device, const StepLimits& limits, bool has_head,
                        LaneBuffers& lane) {
  Allocator make(device);
  make.Make(lane.step, StepAreaBytes(limits), MemoryKind::kUpload, "step");
  if (has_head) {
    make.Make(lane.head_sums, uint64_t{limits.max_outputs} * 8, MemoryKind::kExchange, "head sums");
  }
  return make.status();
}

void ShareScratch(const LaneBuffers& from, LaneBuffers& to) {
  for (Buffer LaneBuffers::*buffer :
       {&LaneBuffers::partials, &LaneBuffers::counters, &LaneBuffers::residual,
        &LaneBuffers::updated, &LaneBuffers::normed, &LaneBuffers::qkv, &LaneBuffers::q,
        &LaneBuffers::k, &LaneBuffers::v, &LaneBuffers::attention, &LaneBuffers::projection,
        &LaneBuffers::activated, &LaneBuffers::head_normed, &LaneBuffers::logits,
        &LaneBuffers::head_slices, &LaneBuffers::matrix_sums, &LaneBuffers::matrix_arrivals}) {
    to.*buffer = (from.*buffer).Alias();
  }
}

absl::Status MakeGuesses(const vulkan::Device& device, vulkan::Uploader& uploader,
                         const StepLimits& limits, Buffer& guesses) {
  const std::vector<std::byte> zeros(limits.max_outputs * sizeof(uint32_t));
  TANDEM_ASSIGN_OR_RETURN(guesses,
                          Buffer::Allocate(device, zeros.size(), MemoryKind::kDevice, "guesses"));
  return uploader.Upload(zeros, guesses, 0);
}

absl::Status MakeWorkspace(const vulkan::Device& device, vulkan::Uploader& uploader,
                           LaneBuffers& lane) {
  const std::vector<std::byte> zeros(kMatrixMaxTiles * sizeof(uint32_t));
  Allocator make(device);
  make.Make(lane.matrix_sums, kMatrixSumsBytes, MemoryKind::kDevice, "matrix sums");
  make.Make(lane.matrix_arrivals, zeros.size(), MemoryKind::kDevice, "matrix arrivals");
  TANDEM_RETURN_IF_ERROR(make.status());
  return uploader.Upload(zeros, lane.matrix_arrivals, 0);
}

// decode.comp's buffers; returns the rows that it takes at once.
absl::StatusOr<uint32_t> MakeDecode(const vulkan::Device& device, vulkan::Uploader& uploader,
                                    const Tuning& tuning, const ModelLoad& load,
                                    const TileRules& rules, bool whole,
                                    std::vector<LaneBuffers>& lanes) {
  const ModelConfig& config = load.weights->config();
  const DecodeShape shape =
      MakeDecodeShape(tuning, config.num_heads, config.num_kv_heads, config.head_dim);
  const uint64_t row_bytes = shape.PartialBytes(config.head_dim);
  const uint64_t fits = std::bit_floor(std::max<uint64_t>(1, kMaxPartialBytes / row_bytes));
  const auto rows =
      static_cast<uint32_t>(std::min<uint64_t>(fits, std::bit_ceil(load.limits.max_rows)));
  const AttentionStepLayout layout(load.limits, rules);
  const std::vector<std::byte> zeros(uint64_t{rows} * shape.parts * sizeof(uint32_t));
  for (LaneBuffers& lane : lanes) {
    Allocator make(device);
    make.Make(lane.attention_step, layout.bytes, MemoryKind::kUpload, "attention step");
    TANDEM_RETURN_IF_ERROR(make.status());
    if (whole && &lane != lanes.data()) continue;
    make.Make(lane.partials, rows * row_bytes, MemoryKind::kDevice, "partial attention");
    make.Make(lane.counters, zeros.size(), MemoryKind::kDevice, "attention counters");
    TANDEM_RETURN_IF_ERROR(make.status());
    TANDEM_RETURN_IF_ERROR(uploader.Upload(zeros, lane.counters, 0));
  }
  return rows;
}

absl::Status MakeRotation(const vulkan::Device& device, vulkan::Uploader& uploader,
                          const ModelConfig& config, uint32_t context_len, double theta,
                          double position_scale, Buffer& buffer) {
  const std::vector<float> table =
      MakeRotationTable(config.head_dim, context_len, theta, position_scale);
  const auto bytes = std::as_bytes(std::span(table));
  TANDEM_ASSIGN_OR_RETURN(
      buffer, Buffer::Allocate(device, bytes.size(), MemoryKind::kDevice, "rotation table"));
  return uploader.Upload(bytes, buffer, 0);
}

uint32_t HeadTile(const ModelLoad& load) {
  const uint64_t row_bytes = uint64_t{LogitStride(load.weights->config().vocab_size)} * 4;
  const uint64_t fits = std::max<uint64_t>(1, kMaxLogitBytes / row_bytes);
  return static_cast<uint32_t>(
      std::min<uint64_t>(std::bit_floor(fits), std::bit_ceil(load.limits.max_outputs)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelBuffers>> ModelBuffers::Create(
    const vulkan::Device& device, vulkan::Uploader& uploader, const Tuning& tuning,
    const ModelLoad& load, const std::vector<Stage>& stages) {
  const ModelConfig& config = load.weights->config();
  auto buffers = std::make_unique<ModelBuffers>();
  const vulkan::FinishUploads before_they_go(uploader);
  buffers->head_tile = HeadTile(load);
  std::set<StageKind> kinds;
  for (const Stage& stage : stages) kinds.insert(stage.kind);
  buffers->lanes.resize(load.exchange->layout.num_lanes);
  const bool whole = load.segments.size() == 1 && stages.size() == NumStages(config.num_layers);
  TANDEM_RETURN_IF_ERROR(MakeGuesses(device, uploader, load.limits, buffers->guesses));
  for (LaneBuffers& lane : buffers->lanes) {
    TANDEM_RETURN_IF_ERROR(MakeMapped(device, load.limits, kinds.contains(StageKind::kHead), lane));
    if (whole && &lane != buffers->lanes.data()) continue;
    TANDEM_RETURN_IF_ERROR(MakeLane(device, tuning, load, kinds, buffers->head_tile, lane));
    if (tuning.matrix.fragments.path != MatrixPath::kNone) {
      TANDEM_RETURN_IF_ERROR(MakeWorkspace(device, uploader, lane));
    }
  }
  if (kinds.contains(StageKind::kAttend) && tuning.decode.enabled) {
    buffers->rules = TileRulesOf(tuning, config.num_heads, config.num_kv_heads, config.head_dim);
    TANDEM_ASSIGN_OR_RETURN(
        buffers->decode_rows,
        MakeDecode(device, uploader, tuning, load, buffers->rules, whole, buffers->lanes));
  }
  for (size_t i = 1; whole && i < buffers->lanes.size(); ++i) {
    ShareScratch(buffers->lanes[0], buffers->lanes[i]);
  }
  for (const Stage& stage : stages) {
    if (stage.kind != StageKind::kAttend) continue;
    const uint64_t bytes = uint64_t{load.kv.num_blocks[GroupOf(config, stage.layer_idx)]} *
                           config.num_kv_heads *
                           KvPageBytes(load.kv.dtype, load.kv.block_tokens, config.head_dim);
    const std::string what = absl::StrFormat("KV cache of layer %d", stage.layer_idx);
    KvBuffers& kv = buffers->kv[stage.layer_idx];
    TANDEM_ASSIGN_OR_RETURN(kv.k, Buffer::Allocate(device, bytes, MemoryKind::kDevice, what));
    TANDEM_ASSIGN_OR_RETURN(kv.v, Buffer::Allocate(device, bytes, MemoryKind::kDevice, what));
    buffers->kv_bytes += 2 * bytes;
  }
  if (kinds.contains(StageKind::kQkv)) {
    const uint32_t context = load.limits.context_len;
    TANDEM_RETURN_IF_ERROR(MakeRotation(device, uploader, config, context, config.rope_theta_global,
                                        config.rope_scale_global, buffers->rotation_global));
    TANDEM_RETURN_IF_ERROR(MakeRotation(device, uploader, config, context, config.rope_theta_local,
                                        1.0, buffers->rotation_local));
  }
  TANDEM_RETURN_IF_ERROR(uploader.Finish());
  return buffers;
}

}  // namespace tandem::gpu

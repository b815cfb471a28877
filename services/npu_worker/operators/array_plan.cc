#include "services/npu_worker/operators/array_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/operators/number_formats.h"
#include "services/npu_worker/xrt/device_access.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<ArrayPlan>> ArrayPlan::Create(
    std::shared_ptr<NpuDevice> device, const NpuOperator& op, ModelLoad load,
    const std::function<void(double, std::string_view)>& progress) {
  std::unique_ptr<ArrayPlan> plan(new ArrayPlan(std::move(device), op, std::move(load)));
  TANDEM_RETURN_IF_ERROR(plan->Prepare(progress));
  return plan;
}

absl::Status ArrayPlan::Prepare(const std::function<void(double, std::string_view)>& progress) {
  progress(0.0, "making NPU buffers");
  TANDEM_RETURN_IF_ERROR(ReadSegments());
  const ModelConfig& config = load_.weights->config();
  TANDEM_ASSIGN_OR_RETURN(commands_,
                          AttentionCommands::Create(*device_, op_,
                                                    {.max_rows = load_.limits.max_rows,
                                                     .num_heads = config.num_heads,
                                                     .num_kv_heads = config.num_kv_heads,
                                                     .scale = config.attention_scale,
                                                     .max_positions = load_.limits.context_len,
                                                     .block_tokens = load_.kv.block_tokens}));
  TANDEM_RETURN_IF_ERROR(MakeSlabs());
  lanes_.resize(load_.exchange->layout.num_lanes);
  return absl::OkStatus();
}

absl::Status ArrayPlan::ReadSegments() {
  const uint32_t num_layers = load_.weights->config().num_layers;
  for (const Segment& segment : load_.segments) {
    const Stage first = StageAt(segment.first_ordinal, num_layers);
    const Stage last = StageAt(segment.last_ordinal, num_layers);
    if (first.kind != StageKind::kAttend || !(first == last)) {
      return absl::FailedPreconditionError(
          absl::StrFormat("segment %d, %s to %s: the NPU runs Attend alone", segment.index,
                          StageName(first), StageName(last)));
    }
    if (layer_of_.size() <= segment.index) layer_of_.resize(segment.index + 1);
    layer_of_[segment.index] = first.layer_idx;
  }
  return absl::OkStatus();
}

KvGroup ArrayPlan::GroupOf(uint32_t layer_idx) const {
  return load_.weights->config().is_global(layer_idx) ? kGlobalGroup : kWindowGroup;
}

SlabShape ArrayPlan::ShapeOf(KvGroup group) const {
  const ModelConfig& config = load_.weights->config();
  return {.num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .num_slots = uint64_t{load_.kv.num_blocks[group]} * load_.kv.block_tokens + kZeroSlots};
}

absl::Status ArrayPlan::MakeSlabs() {
  uint64_t total = 0;
  for (const auto& layer : layer_of_) {
    if (!layer.has_value()) continue;
    const KvGroup group = GroupOf(*layer);
    if (load_.kv.num_blocks[group] == 0 || load_.kv.block_tokens == 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("layer %d: its KV group has no blocks", *layer));
    }
    total += ShapeOf(group).bytes();
  }
  // Memory is handed out before it is there, and the cache is locked page by page.
  const uint64_t available = ReadHostMemory().available_bytes;
  if (total > available) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("KV cache of %d + %d blocks needs %d MiB, %d MiB of memory are available",
                        load_.kv.num_blocks[kGlobalGroup], load_.kv.num_blocks[kWindowGroup],
                        total >> 20, available >> 20));
  }
  for (const auto& layer : layer_of_) {
    if (!layer.has_value()) continue;
    TANDEM_ASSIGN_OR_RETURN(
        KvSlab slab, KvSlab::Create(*device_, commands_->cache_index(), ShapeOf(GroupOf(*layer))));
    slabs_.emplace(*layer, std::move(slab));
  }
  return absl::OkStatus();
}

LoadReport ArrayPlan::report() const {
  LoadReport report = {.exchange_import = ImportPath::kUpload,
                       .note = "float16 activations are converted to bfloat16 on the host"};
  for (const auto& [layer, slab] : slabs_) report.kv_bytes += slab.shape().bytes();
  return report;
}

absl::StatusOr<ArrayPlan::GroupStep*> ArrayPlan::StepOf(const SegmentRun& run, KvGroup group,
                                                        const SlabShape& shape) {
  LaneStep& lane = lanes_[run.lane];
  if (run.first_of_step) {
    for (GroupStep& step : lane) step.code.serial = 0;
  }
  GroupStep& step = lane[group];
  if (step.code.serial != 0) return &step;
  const uint32_t window = group == kWindowGroup ? load_.weights->config().sliding_window : 0;
  TANDEM_RETURN_IF_ERROR(step.runs.Set(*run.step, {.group = group,
                                                   .window = window,
                                                   .block_tokens = load_.kv.block_tokens,
                                                   .num_blocks = load_.kv.num_blocks[group],
                                                   .picture_rows = load_.limits.picture_rows}));
  TANDEM_RETURN_IF_ERROR(commands_->Build(step.runs.runs(), window, shape, step.code));
  return &step;
}

std::span<uint16_t> ArrayPlan::PortRows(uint32_t lane, Port port, uint32_t num_rows) const {
  const ExchangeArea& area = load_.exchange->layout.port(port);
  auto* const rows = reinterpret_cast<uint16_t*>(load_.exchange->Area(lane, area).data());
  return {rows, num_rows * area.row_bytes / sizeof(uint16_t)};
}

absl::StatusOr<SegmentResult> ArrayPlan::Run(const SegmentRun& run, absl::Duration timeout) {
  if (run.segment_index >= layer_of_.size() || !layer_of_[run.segment_index].has_value() ||
      run.lane >= lanes_.size() || run.step == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "segment %d on lane %d: not loaded on this NPU", run.segment_index, run.lane));
  }
  const uint32_t layer = *layer_of_[run.segment_index];
  const uint32_t num_rows = run.step->header.num_rows;
  KvSlab& slab = slabs_.at(layer);
  TANDEM_ASSIGN_OR_RETURN(GroupStep* const step, StepOf(run, GroupOf(layer), slab.shape()));
  const auto queries = PortRows(run.lane, Port::kQ, num_rows);
  HalvesToBf16(queries, commands_->queries().first(queries.size()));
  TANDEM_RETURN_IF_ERROR(slab.Append(step->runs.runs(), PortRows(run.lane, Port::kK, num_rows),
                                     PortRows(run.lane, Port::kV, num_rows)));
  TANDEM_ASSIGN_OR_RETURN(const int64_t ns,
                          commands_->Execute(step->code, slab, num_rows, timeout));
  const auto attention = PortRows(run.lane, Port::kAttention, num_rows);
  Bf16ToHalves(commands_->output().first(attention.size()), attention);
  SegmentResult result;
  result.device_ns = static_cast<uint64_t>(ns);
  result.stage_times.push_back({StageKind::kAttend, result.device_ns});
  return result;
}

}  // namespace tandem::npu

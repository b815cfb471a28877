#include "services/npu_worker/operators/array_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/operators/number_formats.h"
#include "services/npu_worker/xrt/device_access.h"

namespace tandem::npu {
namespace {

std::vector<Stage> StagesOf(const ModelLoad& load) {
  std::vector<Stage> stages;
  for (const Segment& segment : load.segments) {
    for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
      stages.push_back(StageAt(s, load.weights->config().num_layers));
    }
  }
  return stages;
}

}  // namespace

bool ArrayPlan::HasStage(const ModelLoad& load, StageKind kind) {
  return std::ranges::any_of(StagesOf(load),
                             [kind](const Stage& stage) { return stage.kind == kind; });
}

std::vector<std::pair<WeightRole, uint32_t>> ArrayPlan::MatricesOf(const ModelLoad& load) {
  std::vector<std::pair<WeightRole, uint32_t>> matrices;
  for (const auto& [kind, layer_idx] : StagesOf(load)) {
    if (kind != StageKind::kQkv && kind != StageKind::kOut && kind != StageKind::kFfn) continue;
    for (const WeightRole role : RolesOfStage(kind)) {
      if (!IsNorm(role)) matrices.emplace_back(role, layer_idx);
    }
  }
  return matrices;
}

absl::StatusOr<std::unique_ptr<ArrayPlan>> ArrayPlan::Create(
    Operators operators, ModelLoad load,
    const std::function<void(double, std::string_view)>& progress) {
  std::unique_ptr<ArrayPlan> plan(new ArrayPlan(std::move(operators), std::move(load)));
  TANDEM_RETURN_IF_ERROR(plan->Prepare(progress));
  return plan;
}

absl::Status ArrayPlan::Prepare(const std::function<void(double, std::string_view)>& progress) {
  progress(0.0, "making NPU buffers");
  TANDEM_RETURN_IF_ERROR(ReadSegments());
  TANDEM_RETURN_IF_ERROR(CountWeights());
  TANDEM_RETURN_IF_ERROR(CheckMemory());
  const uint64_t locked = LockedMemory();  // before: instructions, other plans
  const absl::Status made = MakeBuffers(progress);
  if (absl::IsResourceExhausted(made)) {
    // The driver does not say which limit a buffer is beyond.
    TANDEM_RETURN_IF_ERROR(
        CheckLockedMemory(LockedMemoryLimit(), locked + KvBytes() + weight_bytes_));
  }
  return made;
}

absl::Status ArrayPlan::MakeBuffers(const std::function<void(double, std::string_view)>& progress) {
  const ModelConfig& config = load_.weights->config();
  const uint32_t max_rows = load_.limits.max_rows;
  const auto& [attention, rows, gemms] = operators_;
  if (attention.op != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(commands_,
                            AttentionCommands::Create(*attention.kernel, *attention.op,
                                                      {.max_rows = max_rows,
                                                       .num_heads = config.num_heads,
                                                       .num_kv_heads = config.num_kv_heads,
                                                       .scale = config.attention_scale,
                                                       .max_positions = load_.limits.context_len,
                                                       .block_tokens = load_.kv.block_tokens}));
  }
  TANDEM_RETURN_IF_ERROR(MakeSlabs());
  if (HasStage(load_, StageKind::kOut)) {
    TANDEM_ASSIGN_OR_RETURN(projection_, OutProjection::Create(gemms, config, max_rows));
  }
  if (HasStage(load_, StageKind::kQkv)) {
    TANDEM_ASSIGN_OR_RETURN(qkv_, QkvStage::Create(gemms, rows, config, max_rows));
  }
  if (HasStage(load_, StageKind::kFfn)) {
    TANDEM_ASSIGN_OR_RETURN(ffn_, FfnStage::Create(gemms, rows, config, max_rows));
  }
  TANDEM_RETURN_IF_ERROR(MakeWeights(progress));
  lanes_.resize(load_.exchange->layout.num_lanes);
  return absl::OkStatus();
}

bool ArrayPlan::CanRun(StageKind kind) const {
  switch (kind) {
    case StageKind::kAttend:
      return operators_.attention.op != nullptr;
    case StageKind::kOut:
      return !operators_.gemms.empty();
    case StageKind::kQkv:
    case StageKind::kFfn:
      return !operators_.gemms.empty() && operators_.rows.op != nullptr;
    default:
      return false;
  }
}

absl::Status ArrayPlan::ReadSegments() {
  const uint32_t num_layers = load_.weights->config().num_layers;
  for (const Segment& segment : load_.segments) {
    LoadedSegment loaded;
    for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
      loaded.push_back(StageAt(s, num_layers));
      if (CanRun(loaded.back().kind)) continue;
      return absl::FailedPreconditionError(absl::StrFormat(
          "segment %d: the NPU does not run %s", segment.index, StageName(loaded.back())));
    }
    if (segments_.size() <= segment.index) segments_.resize(segment.index + 1);
    segments_[segment.index] = std::move(loaded);
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

absl::Status ArrayPlan::CountWeights() {
  for (const LoadedSegment& segment : segments_) {
    for (const auto& [kind, layer_idx] : segment) {
      if (kind == StageKind::kAttend) continue;
      const auto bytes_of = kind == StageKind::kOut   ? OutProjection::LayerBytes
                            : kind == StageKind::kQkv ? QkvStage::LayerBytes
                                                      : FfnStage::LayerBytes;
      TANDEM_ASSIGN_OR_RETURN(const uint64_t bytes,
                              bytes_of(operators_.gemms, *load_.weights, layer_idx));
      weight_bytes_ += bytes;
    }
  }
  return absl::OkStatus();
}

uint64_t ArrayPlan::KvBytes() const {
  uint64_t bytes = 0;
  for (const LoadedSegment& segment : segments_) {
    for (const Stage& stage : segment) {
      if (stage.kind == StageKind::kAttend) bytes += ShapeOf(GroupOf(stage.layer_idx)).bytes();
    }
  }
  return bytes;
}

absl::Status ArrayPlan::CheckMemory() const {
  for (const LoadedSegment& segment : segments_) {
    for (const Stage& stage : segment) {
      if (stage.kind != StageKind::kAttend) continue;
      const KvGroup group = GroupOf(stage.layer_idx);
      if (load_.kv.num_blocks[group] == 0 || load_.kv.block_tokens == 0) {
        return absl::InvalidArgumentError(
            absl::StrFormat("layer %d: its KV group has no blocks", stage.layer_idx));
      }
    }
  }
  // Memory is handed out before it is there, and buffers are locked page by page.
  const uint64_t available = ReadHostMemory().available_bytes;
  const uint64_t kv_bytes = KvBytes();
  if (kv_bytes + weight_bytes_ <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "KV cache of %d + %d blocks needs %d MiB and copies of weights %d MiB, %d MiB "
      "of memory are available",
      load_.kv.num_blocks[kGlobalGroup], load_.kv.num_blocks[kWindowGroup], kv_bytes >> 20,
      weight_bytes_ >> 20, available >> 20));
}

absl::Status ArrayPlan::MakeSlabs() {
  for (const LoadedSegment& segment : segments_) {
    for (const Stage& stage : segment) {
      if (stage.kind != StageKind::kAttend) continue;
      TANDEM_ASSIGN_OR_RETURN(KvSlab slab,
                              KvSlab::Create(*operators_.attention.kernel, commands_->cache_index(),
                                             ShapeOf(GroupOf(stage.layer_idx))));
      slabs_.emplace(stage.layer_idx, std::move(slab));
    }
  }
  return absl::OkStatus();
}

absl::Status ArrayPlan::MakeWeights(const std::function<void(double, std::string_view)>& progress) {
  size_t done = 0;
  for (const LoadedSegment& segment : segments_) {
    progress(static_cast<double>(++done) / static_cast<double>(segments_.size() + 1),
             "copying weights for the NPU");
    for (const auto& [kind, layer_idx] : segment) {
      if (kind == StageKind::kOut) {
        TANDEM_RETURN_IF_ERROR(projection_->AddLayer(*load_.weights, layer_idx));
      } else if (kind == StageKind::kQkv) {
        TANDEM_RETURN_IF_ERROR(qkv_->AddLayer(*load_.weights, layer_idx));
      } else if (kind == StageKind::kFfn) {
        TANDEM_RETURN_IF_ERROR(ffn_->AddLayer(*load_.weights, layer_idx));
      }
    }
  }
  return absl::OkStatus();
}

LoadReport ArrayPlan::report() const {
  LoadReport report = {.exchange_import = ImportPath::kUpload,
                       .note = DTypeOf(!HasPorts()) == DType::kBf16
                                   ? "activations are exchanged in bfloat16"
                                   : "float16 activations are converted to bfloat16 on the host"};
  for (const auto& [layer, slab] : slabs_) report.kv_bytes += slab.shape().bytes();
  report.weight_bytes = weight_bytes_;
  if (report.weight_bytes == 0) return report;
  report.weight_import = ImportPath::kUpload;
  std::vector<std::string> formats;
  for (const auto& [format, gemm] : operators_.gemms) formats.emplace_back(Traits(format).name);
  report.note += absl::StrFormat("; weights are copied as %s", absl::StrJoin(formats, ", "));
  return report;
}

absl::StatusOr<ArrayPlan::GroupStep*> ArrayPlan::StepOf(const SegmentRun& run, KvGroup group,
                                                        const SlabShape& shape) {
  GroupStep& step = lanes_[run.lane][group];
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

std::span<float> ArrayPlan::FloatRows(uint32_t lane, Port port, uint32_t num_rows) const {
  const ExchangeArea& area = load_.exchange->layout.port(port);
  auto* const rows = reinterpret_cast<float*>(load_.exchange->Area(lane, area).data());
  return {rows, num_rows * area.row_bytes / sizeof(float)};
}

bool ArrayPlan::HasPorts() const {
  constexpr PortMask kPorts = Port::kQ | Port::kK | Port::kV | Port::kAttention;
  return std::ranges::any_of(load_.segments, [](const Segment& segment) {
    return ((segment.inputs | segment.outputs) & kPorts) != 0;
  });
}

absl::StatusOr<int64_t> ArrayPlan::Attend(const SegmentRun& run, uint32_t layer_idx, bool has_input,
                                          bool keeps_output, absl::Duration timeout) {
  const uint32_t num_rows = run.step->header.num_rows;
  KvSlab& slab = slabs_.at(layer_idx);
  TANDEM_ASSIGN_OR_RETURN(GroupStep* const step, StepOf(run, GroupOf(layer_idx), slab.shape()));
  const auto queries = PortRows(run.lane, Port::kQ, num_rows);
  PortToBf16(DTypeOf(has_input), queries, commands_->queries().first(queries.size()));
  TANDEM_RETURN_IF_ERROR(slab.Append(step->runs.runs(), DTypeOf(has_input),
                                     PortRows(run.lane, Port::kK, num_rows),
                                     PortRows(run.lane, Port::kV, num_rows)));
  TANDEM_ASSIGN_OR_RETURN(const int64_t ns,
                          commands_->Execute(step->code, slab, num_rows, timeout));
  if (keeps_output) return ns;
  const auto attention = PortRows(run.lane, Port::kAttention, num_rows);
  Bf16ToPort(load_.port_dtype, commands_->output().first(attention.size()), attention);
  return ns;
}

absl::StatusOr<int64_t> ArrayPlan::Project(const SegmentRun& run, uint32_t layer_idx,
                                           bool has_input, absl::Duration timeout) {
  const uint32_t num_rows = run.step->header.num_rows;
  const auto attention = has_input
                             ? commands_->output().first(num_rows * load_.weights->config().q_dim())
                             : PortRows(run.lane, Port::kAttention, num_rows);
  projection_->SetRows(DTypeOf(has_input), attention, num_rows);
  return projection_->Run(layer_idx, num_rows, FloatRows(run.lane, Port::kProjection, num_rows),
                          timeout);
}

absl::StatusOr<int64_t> ArrayPlan::MakeQkv(const SegmentRun& run, uint32_t layer_idx,
                                           bool keeps_output, absl::Duration timeout) {
  const uint32_t num_rows = run.step->header.num_rows;
  return qkv_->Run(layer_idx, run.step->rows, FloatRows(run.lane, Port::kResidual, num_rows),
                   {.q = PortRows(run.lane, Port::kQ, num_rows),
                    .k = PortRows(run.lane, Port::kK, num_rows),
                    .v = PortRows(run.lane, Port::kV, num_rows),
                    .dtype = DTypeOf(keeps_output)},
                   timeout);
}

absl::StatusOr<int64_t> ArrayPlan::FeedForward(const SegmentRun& run, uint32_t layer_idx,
                                               absl::Duration timeout) {
  const uint32_t num_rows = run.step->header.num_rows;
  return ffn_->Run(layer_idx, FloatRows(run.lane, Port::kProjection, num_rows),
                   FloatRows(run.lane, Port::kResidual, num_rows), timeout);
}

absl::StatusOr<int64_t> ArrayPlan::RunStage(const SegmentRun& run, const LoadedSegment& segment,
                                            size_t index, absl::Duration timeout) {
  const auto& [kind, layer_idx] = segment[index];
  // Qkv, Attend and Out of a layer follow one another.
  const bool has_input = index > 0, keeps_output = index + 1 < segment.size();
  switch (kind) {
    case StageKind::kQkv:
      return MakeQkv(run, layer_idx, keeps_output, timeout);
    case StageKind::kAttend:
      return Attend(run, layer_idx, has_input, keeps_output, timeout);
    case StageKind::kOut:
      return Project(run, layer_idx, has_input, timeout);
    case StageKind::kFfn:
      return FeedForward(run, layer_idx, timeout);
    default:
      return absl::InternalError("a stage that Create has not refused");
  }
}

absl::StatusOr<SegmentResult> ArrayPlan::Run(const SegmentRun& run, absl::Duration timeout) {
  if (run.segment_index >= segments_.size() || segments_[run.segment_index].empty() ||
      run.lane >= lanes_.size() || run.step == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "segment %d on lane %d: not loaded on this NPU", run.segment_index, run.lane));
  }
  const LoadedSegment& segment = segments_[run.segment_index];
  if (run.first_of_step) {
    for (GroupStep& step : lanes_[run.lane]) step.code.serial = 0;
  }
  SegmentResult result;
  for (size_t i = 0; i < segment.size(); ++i) {
    const absl::StatusOr<int64_t> stage_ns = RunStage(run, segment, i, timeout);
    // A command that ended with an error leaves cores, queues and locks in a state that nobody knows.
    if (absl::IsInternal(stage_ns.status())) {
      return absl::UnavailableError(stage_ns.status().message());
    }
    TANDEM_RETURN_IF_ERROR(stage_ns.status());
    const auto ns = static_cast<uint64_t>(*stage_ns);
    result.device_ns += ns;
    const auto known = std::ranges::find(result.stage_times, segment[i].kind, &StageTime::kind);
    if (known == result.stage_times.end()) {
      result.stage_times.push_back({segment[i].kind, ns});
    } else {
      known->device_ns += ns;
    }
  }
  return result;
}

absl::Status ArrayPlan::CopyKv(const KvCopy& copy) {
  const std::span<std::byte> area = load_.exchange->Area(0, load_.exchange->layout.kv);
  absl::Status status;
  kv_layout_.ForEachPart(copy, [&](uint32_t layer_idx, uint32_t block, uint64_t offset) {
    const auto slab = slabs_.find(layer_idx);
    if (slab == slabs_.end() || !status.ok()) return;
    const std::span<std::byte> part = area.subspan(offset, kv_layout_.part_bytes());
    const uint32_t block_tokens = load_.kv.block_tokens;
    status = slab->second.CopyBlock(
        copy.write, uint64_t{block} * block_tokens, block_tokens,
        {reinterpret_cast<uint16_t*>(part.data()), part.size() / sizeof(uint16_t)});
  });
  return status;
}

}  // namespace tandem::npu

#include "services/npu_worker/attention/npu_plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/attention/kernel_abi.h"
#include "services/npu_worker/attention/step_encoder.h"

namespace tandem::npu {
namespace {

constexpr uint64_t kParameterBytes = sizeof(AttendParameters);
static_assert(sizeof(OutParameters) == kParameterBytes);

}  // namespace

absl::StatusOr<std::unique_ptr<NpuPlan>> NpuPlan::Create(
    NpuKernel& npu, const KernelPackage& package, ModelLoad load,
    const std::function<void(double, std::string_view)>& progress) {
  std::unique_ptr<NpuPlan> plan(new NpuPlan(npu, package, std::move(load)));
  TANDEM_RETURN_IF_ERROR(plan->Prepare(progress));
  return plan;
}

absl::Status NpuPlan::Prepare(const std::function<void(double, std::string_view)>& progress) {
  progress(0.0, "making NPU buffers");
  TANDEM_RETURN_IF_ERROR(MakeBuffers());
  size_t done = 0;
  for (const Segment& segment : load_.segments) {
    progress(static_cast<double>(++done) / static_cast<double>(load_.segments.size() + 1),
             "making NPU commands");
    TANDEM_RETURN_IF_ERROR(MakeSegment(segment));
  }
  return layers_.SyncToDevice(0, layers_.size());
}

absl::StatusOr<std::vector<Stage>> NpuPlan::StagesOf(const Segment& segment) const {
  const uint32_t num_layers = load_.weights->config().num_layers;
  std::vector<Stage> stages;
  for (uint32_t ordinal = segment.first_ordinal; ordinal <= segment.last_ordinal; ++ordinal) {
    const Stage stage = StageAt(ordinal, num_layers);
    if (stage.kind != StageKind::kAttend && stage.kind != StageKind::kOut) {
      return absl::FailedPreconditionError(
          absl::StrFormat("segment %d: the NPU does not run %s", segment.index, StageName(stage)));
    }
    stages.push_back(stage);
  }
  return stages;
}

absl::Status NpuPlan::MakeBuffers() {
  const ModelConfig& config = load_.weights->config();
  std::vector<uint32_t> attend_layers;
  size_t num_commands = 0;
  for (const Segment& segment : load_.segments) {
    TANDEM_ASSIGN_OR_RETURN(const auto stages, StagesOf(segment));
    for (const Stage& stage : stages) {
      if (stage.kind == StageKind::kAttend) {
        attend_layers.push_back(stage.layer_idx);
        ++num_commands;
      } else {
        num_commands += load_.weights->Find(WeightRole::kOut, stage.layer_idx)->shards.size();
      }
    }
  }
  TANDEM_ASSIGN_OR_RETURN(kv_, KvCache::Create(npu_, config, load_.kv, attend_layers));
  kv_layout_ = KvCopyLayout(config, load_.limits);
  TANDEM_ASSIGN_OR_RETURN(exchange_, ExchangeBuffers::Create(npu_, load_.exchange));
  TANDEM_ASSIGN_OR_RETURN(layers_, npu_.Allocate(kLayerBuffer, num_commands * kSliceAlignment));
  lanes_.resize(load_.exchange->layout.num_lanes);
  for (Lane& lane : lanes_) {
    TANDEM_ASSIGN_OR_RETURN(lane.step,
                            npu_.Allocate(kStepBuffer, StepDescriptorBytes(load_.limits)));
  }
  return absl::OkStatus();
}

absl::StatusOr<const NpuBuffer*> NpuPlan::AddLayer(const void* parameters) {
  const size_t offset = layer_slices_.size() * kSliceAlignment;
  TANDEM_ASSIGN_OR_RETURN(NpuBuffer slice, layers_.Slice(offset, kParameterBytes));
  std::memcpy(layers_.data() + offset, parameters, kParameterBytes);
  layer_slices_.push_back(std::make_unique<NpuBuffer>(std::move(slice)));
  return layer_slices_.back().get();
}

absl::StatusOr<const NpuPlan::Program*> NpuPlan::FindProgram(const std::vector<uint32_t>& words) {
  for (const auto& [known, program] : programs_) {
    if (known == &words) return program.get();
  }
  auto program = std::make_unique<Program>();
  TANDEM_ASSIGN_OR_RETURN(program->code, npu_.MakeCode(CodeForm::kInstructions, words));
  programs_.emplace_back(&words, std::move(program));
  return programs_.back().second.get();
}

absl::StatusOr<std::vector<NpuPlan::Command>> NpuPlan::MakeCommands(
    const std::vector<Stage>& stages) {
  const ModelConfig& config = load_.weights->config();
  const ExchangeLayout& layout = load_.exchange->layout;
  std::vector<Command> commands;
  for (const Stage& stage : stages) {
    if (stage.kind == StageKind::kAttend) {
      const AttendParameters parameters = MakeAttendParameters(
          config, stage.layer_idx, layout, load_.kv, kv_.offset(stage.layer_idx));
      TANDEM_ASSIGN_OR_RETURN(const NpuBuffer* layer, AddLayer(&parameters));
      commands.push_back({.kind = stage.kind, .layer = layer, .kv = &kv_.buffer(stage.layer_idx)});
      continue;
    }
    const PackedTensor& weight = *load_.weights->Find(WeightRole::kOut, stage.layer_idx);
    for (const Shard& shard : weight.shards) {
      TANDEM_ASSIGN_OR_RETURN(const auto place, weights_.Import(npu_, weight, shard));
      const OutParameters parameters =
          MakeOutParameters(config, weight, shard, layout, place.offset);
      TANDEM_ASSIGN_OR_RETURN(const NpuBuffer* layer, AddLayer(&parameters));
      commands.push_back({.kind = stage.kind,
                          .layer = layer,
                          .weights = place.buffer,
                          .weight_dtype = shard.dtype});
    }
  }
  return commands;
}

absl::StatusOr<NpuPlan::Bucket> NpuPlan::MakeBucket(const std::vector<Command>& commands,
                                                    uint32_t lane, const AttendKernel* attend) {
  Bucket bucket;
  bucket.max_positions = attend == nullptr ? ~0u : attend->max_positions;
  bucket.runs.reserve(commands.size());
  const NpuBuffer* step = &lanes_[lane].step;
  for (const Command& command : commands) {
    const std::vector<uint32_t>* words = nullptr;
    if (command.kind == StageKind::kAttend) {
      words = &attend->instructions;
    } else {
      TANDEM_ASSIGN_OR_RETURN(const OutKernel* out, package_.FindOut(command.weight_dtype));
      words = &out->instructions;
    }
    TANDEM_ASSIGN_OR_RETURN(const Program* program, FindProgram(*words));
    const std::array<const NpuBuffer*, kNumDataBuffers> data = {
        step, command.layer, &exchange_.lane(lane), command.kv == nullptr ? step : command.kv,
        command.weights == nullptr ? step : command.weights};
    TANDEM_ASSIGN_OR_RETURN(NpuRun run, npu_.MakeRun(program->code, data));
    bucket.runs.push_back(std::move(run));
  }
  std::vector<NpuRun*> runs;
  for (NpuRun& run : bucket.runs) runs.push_back(&run);
  TANDEM_ASSIGN_OR_RETURN(NpuRunList list, npu_.context().MakeRunList(runs));
  bucket.list = std::make_unique<NpuRunList>(std::move(list));
  return bucket;
}

absl::Status NpuPlan::MakeSegment(const Segment& segment) {
  TANDEM_ASSIGN_OR_RETURN(const auto stages, StagesOf(segment));
  TANDEM_ASSIGN_OR_RETURN(const auto commands, MakeCommands(stages));
  auto loaded = std::make_unique<LoadedSegment>();
  for (const Command& command : commands) {
    loaded->kinds.push_back(command.kind);
    (command.kind == StageKind::kAttend ? loaded->attends : loaded->projects) = true;
  }
  std::vector<const AttendKernel*> kernels = {nullptr};
  if (loaded->attends) {
    TANDEM_ASSIGN_OR_RETURN(kernels, package_.AttendBuckets(load_.weights->config().head_dim,
                                                            load_.limits.context_len));
  }
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    std::vector<Bucket>& buckets = loaded->buckets.emplace_back();
    for (const AttendKernel* kernel : kernels) {
      TANDEM_ASSIGN_OR_RETURN(Bucket bucket, MakeBucket(commands, lane, kernel));
      buckets.push_back(std::move(bucket));
    }
  }
  run_ns_.resize(std::max(run_ns_.size(), commands.size()));
  if (segments_.size() <= segment.index) segments_.resize(segment.index + 1);
  segments_[segment.index] = std::move(loaded);
  return absl::OkStatus();
}

LoadReport NpuPlan::report() const {
  LoadReport report = {.weight_import = weights_.path(),
                       .exchange_import = exchange_.path(),
                       .weight_bytes = weights_.bytes(),
                       .kv_bytes = kv_.total_bytes(),
                       .note = exchange_.note()};
  if (!weights_.note().empty()) {
    report.note += (report.note.empty() ? "" : "; ") + weights_.note();
  }
  return report;
}

absl::Status NpuPlan::WriteStep(const SegmentRun& run) {
  Lane& lane = lanes_[run.lane];
  const EncodedStep encoded =
      EncodeStep(*run.step, load_.limits.picture_rows, {lane.step.data(), lane.step.size()});
  lane.num_positions = encoded.num_positions;
  return lane.step.SyncToDevice(0, encoded.bytes);
}

absl::StatusOr<SegmentResult> NpuPlan::Run(const SegmentRun& run, absl::Duration timeout) {
  if (run.segment_index >= segments_.size() || segments_[run.segment_index] == nullptr ||
      run.lane >= lanes_.size() || run.step == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "segment %d on lane %d: not loaded on this NPU", run.segment_index, run.lane));
  }
  LoadedSegment& segment = *segments_[run.segment_index];
  if (run.first_of_step) TANDEM_RETURN_IF_ERROR(WriteStep(run));
  const uint32_t num_rows = run.step->header.num_rows;
  if (segment.attends) {
    for (const Port port : {Port::kQ, Port::kK, Port::kV}) {
      TANDEM_RETURN_IF_ERROR(exchange_.ToDevice(run.lane, port, num_rows));
    }
  } else {
    TANDEM_RETURN_IF_ERROR(exchange_.ToDevice(run.lane, Port::kAttention, num_rows));
  }

  std::vector<Bucket>& buckets = segment.buckets[run.lane];
  const uint32_t num_positions = lanes_[run.lane].num_positions;
  const auto bucket = std::ranges::find_if(
      buckets, [num_positions](const Bucket& b) { return num_positions <= b.max_positions; });
  TANDEM_CHECK(bucket != buckets.end());  // the last holds the context, which bounds positions
  const std::span<int64_t> run_ns(run_ns_.data(), segment.kinds.size());
  TANDEM_RETURN_IF_ERROR(bucket->list->Execute(timeout, run_ns));

  if (segment.attends) {
    TANDEM_RETURN_IF_ERROR(exchange_.FromDevice(run.lane, Port::kAttention, num_rows));
  }
  if (segment.projects) {
    TANDEM_RETURN_IF_ERROR(exchange_.FromDevice(run.lane, Port::kProjection, num_rows));
  }
  SegmentResult result;
  result.device_ns = static_cast<uint64_t>(std::reduce(run_ns.begin(), run_ns.end()));
  for (size_t i = 0; i < run_ns.size(); ++i) {
    const auto ns = static_cast<uint64_t>(run_ns[i]);
    if (!result.stage_times.empty() && result.stage_times.back().kind == segment.kinds[i]) {
      result.stage_times.back().device_ns += ns;
    } else {
      result.stage_times.push_back({segment.kinds[i], ns});
    }
  }
  return result;
}

absl::Status NpuPlan::CopyKv(const KvCopy& copy) {
  return kv_.Copy(copy, kv_layout_, load_.exchange->Area(0, load_.exchange->layout.kv));
}

}  // namespace tandem::npu

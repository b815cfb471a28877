#include "services/worker_host/loaded_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/plan/port_formats.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/inline_exchange.h"
#include "services/common/rpc/inline_kv.h"
#include "services/common/rpc/worker_convert.h"

namespace tandem {
namespace {

// Most memory that a gateway on another host can make a worker allocate for its activations.
constexpr uint64_t kMaxOwnExchangeBytes = uint64_t{2} << 30;

absl::StatusOr<UniqueFd> MakeOwnExchange(uint64_t bytes) {
  if (bytes > kMaxOwnExchangeBytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "activations of the plan take %d MiB, a worker gives another host %d: lower --max-rows",
        bytes >> 20, kMaxOwnExchangeBytes >> 20));
  }
  return CreateSharedMemory("exchange", bytes);
}

absl::Status CheckStages(const std::vector<Segment>& segments, const WorkerDescription& worker,
                         uint32_t num_layers) {
  for (const Segment& segment : segments) {
    for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
      const Stage stage = StageAt(s, num_layers);
      if (std::find(worker.stages.begin(), worker.stages.end(), stage.kind) ==
          worker.stages.end()) {
        return absl::FailedPreconditionError(absl::StrFormat(
            "segment %d: %s does not run %s", segment.index, worker.name, StageName(stage)));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DType> PortDTypeFromProto(const worker::v1::LoadPlanRequest& request) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    if (request.port_dtype() == static_cast<uint32_t>(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("plan: no port is of number format %d", request.port_dtype()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedPlan>> LoadedPlan::Create(
    const worker::v1::LoadPlanRequest& request, uint32_t number,
    const WorkerDescription& description, std::shared_ptr<const WeightSet> weights,
    UniqueFd exchange_fd) {
  const ModelConfig& config = weights->config();
  std::unique_ptr<LoadedPlan> plan(new LoadedPlan);
  plan->epoch_ = request.epoch();
  plan->number_ = number;
  plan->num_layers_ = config.num_layers;
  TANDEM_ASSIGN_OR_RETURN(plan->segments_, SegmentsFromProto(request, config.num_layers));
  TANDEM_RETURN_IF_ERROR(CheckStages(plan->segments_, description, config.num_layers));
  const bool vision = IsVisionPlan(plan->segments_, config.num_layers);
  TANDEM_ASSIGN_OR_RETURN(plan->limits_,
                          vision ? VisionLimitsFromProto(request.limits(), config)
                                 : LimitsFromProto(request.limits(), config, description.max_rows));
  if (!vision && plan->limits_.max_pictures > 0 && !description.takes_pictures) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "steps of up to %d pictures: %s takes none", plan->limits_.max_pictures, description.name));
  }
  const DType kv_dtype = plan->limits_.kv_dtype;
  if (kv_dtype != DType::kF16 &&
      std::find(description.kv_dtypes.begin(), description.kv_dtypes.end(), kv_dtype) ==
          description.kv_dtypes.end()) {
    return absl::FailedPreconditionError(absl::StrFormat("%s has no %s KV cache", description.name,
                                                         std::string(Traits(kv_dtype).name)));
  }
  if (!vision) {
    TANDEM_ASSIGN_OR_RETURN(plan->port_dtype_, PortDTypeFromProto(request));
    TANDEM_RETURN_IF_ERROR(CheckPortDType(description, plan->segments_, plan->port_dtype_));
  }
  if (plan->limits_.kv_area_bytes > 0 && !description.copies_kv) {
    return absl::FailedPreconditionError(
        absl::StrFormat("copies of KV blocks: %s makes none", description.name));
  }
  if (request.num_lanes() < 1 || request.num_lanes() > kMaxLanes) {
    return absl::InvalidArgumentError(absl::StrFormat("plan: num_lanes is %d, must be in [1, %d]",
                                                      request.num_lanes(), kMaxLanes));
  }
  auto exchange = std::make_shared<Exchange>();
  exchange->layout = MakeExchangeLayout(config, plan->limits_, request.num_lanes());
  plan->inline_activations_ = request.inline_activations();
  if (plan->inline_activations_) {
    TANDEM_ASSIGN_OR_RETURN(exchange->fd, MakeOwnExchange(exchange->layout.total_bytes()));
  } else {
    exchange->fd = std::move(exchange_fd);
  }
  TANDEM_ASSIGN_OR_RETURN(exchange->mapping,
                          Mapping::Map(exchange->fd.get(), exchange->layout.total_bytes(),
                                       Mapping::Access::kReadWrite));
  plan->exchange_ = std::move(exchange);
  if (plan->inline_activations_) TANDEM_RETURN_IF_ERROR(plan->CheckInlineSizes());
  plan->is_mine_.resize(plan->segments_.back().index + 1);
  for (const Segment& segment : plan->segments_) plan->is_mine_[segment.index] = true;
  plan->feeds_steps_ = description.feeds_steps && plan->segments_.size() == 1 &&
                       plan->segments_[0].first_ordinal == 0 &&
                       plan->segments_[0].last_ordinal + 1 == NumStages(config.num_layers);
  if (!vision) {
    plan->kv_layout_ = KvCopyLayout(config, plan->limits_);
    plan->attends_ = AttendedLayers(plan->segments_, config.num_layers);
  }
  plan->lanes_.resize(request.num_lanes());
  for (Lane& lane : plan->lanes_) lane.storage.resize(plan->exchange_->layout.step.bytes);
  plan->weights_ = std::move(weights);
  return plan;
}

absl::Status LoadedPlan::CheckInlineSizes() const {
  for (const Segment& segment : segments_) {
    const uint64_t bytes =
        LargestInlineMessage(*exchange_, segment, EndsWithHead(segment, num_layers_));
    if (bytes + kMaxInlineMessageBytes / 256 <= kMaxInlineMessageBytes) continue;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "segment %d: messages of up to %d MiB, at most %d travel between hosts: lower --max-rows "
        "or --max-sequences",
        segment.index, bytes >> 20, kMaxInlineMessageBytes >> 20));
  }
  return absl::OkStatus();
}

const Segment& LoadedPlan::SegmentOf(uint32_t segment_index) const {
  return *std::find_if(segments_.begin(), segments_.end(), [segment_index](const Segment& segment) {
    return segment.index == segment_index;
  });
}

ModelLoad LoadedPlan::MakeLoad() const {
  ModelLoad load;
  load.plan = number_;
  load.weights = weights_;
  load.segments = segments_;
  load.limits = limits_;
  load.kv.block_tokens = limits_.block_tokens;
  load.kv.dtype = limits_.kv_dtype;
  std::copy(std::begin(limits_.num_blocks), std::end(limits_.num_blocks), load.kv.num_blocks);
  load.port_dtype = port_dtype_;
  load.exchange = exchange_;
  return load;
}

absl::Status LoadedPlan::CheckCall(const worker::v1::ExecuteRequest& request) const {
  const uint32_t segment_index = request.segment_index();
  if (segment_index >= is_mine_.size() || !is_mine_[segment_index]) {
    return absl::InvalidArgumentError(
        absl::StrFormat("segment %d is not one of this worker's %d, the last of them %d",
                        segment_index, segments_.size(), segments_.back().index));
  }
  if (request.has_inputs() != inline_activations_) {
    return absl::InvalidArgumentError(
        inline_activations_ ? "a call without inputs, under a plan whose activations come inline"
                            : "a call with inputs, under a plan whose activations lie in memory");
  }
  return absl::OkStatus();
}

absl::StatusOr<SegmentRun> LoadedPlan::Prepare(const worker::v1::ExecuteRequest& request) {
  TANDEM_RETURN_IF_ERROR(CheckCall(request));
  const uint32_t segment_index = request.segment_index();
  if (request.lane() >= lanes_.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("lane %d, the exchange region has %d", request.lane(), lanes_.size()));
  }
  Lane& lane = lanes_[request.lane()];
  SegmentRun run;
  run.plan = number_;
  run.segment_index = segment_index;
  run.lane = request.lane();
  run.first_of_step = !lane.parsed || lane.step.header.step_id != request.step_id() ||
                      segment_index == segments_.front().index;
  if (run.first_of_step) {
    if (inline_activations_) {
      TANDEM_RETURN_IF_ERROR(TakeStep(request.inputs(), *exchange_, request.lane()));
    }
    TANDEM_RETURN_IF_ERROR(ReadStep(request.lane(), request.step_id()));
  }
  run.step = &lane.step;
  run.masks_follow = request.masks_follow() && lane.step.header.num_masks > 0;
  if (inline_activations_) {
    if (run.masks_follow) {
      return absl::InvalidArgumentError("masks that follow, under a plan with inline activations");
    }
    const Segment& segment = SegmentOf(segment_index);
    TANDEM_RETURN_IF_ERROR(TakeInputs(request.inputs(), *exchange_, request.lane(), segment,
                                      lane.step.header, EndsWithHead(segment, num_layers_)));
  }
  return run;
}

void LoadedPlan::PutOutputs(uint32_t segment_index, uint32_t lane, const StepHeader& header,
                            worker::v1::ExecuteResponse& response) const {
  if (!inline_activations_) return;
  const Segment& segment = SegmentOf(segment_index);
  tandem::PutOutputs(*exchange_, lane, segment, header, EndsWithHead(segment, num_layers_),
                     *response.mutable_outputs());
}

absl::StatusOr<KvCopy> LoadedPlan::PrepareCopy(const worker::v1::ExecuteRequest& request) const {
  TANDEM_RETURN_IF_ERROR(CheckCall(request));
  const KvCopy copy = FromProto(request.kv_copy());
  if (limits_.kv_area_bytes == 0) {
    return absl::InvalidArgumentError("a copy of KV, under a plan without an area for it");
  }
  TANDEM_RETURN_IF_ERROR(kv_layout_.Check(copy));
  if (inline_activations_ && copy.write) {
    TANDEM_RETURN_IF_ERROR(TakeKv(request.inputs().kv(), kv_layout_, copy, attends_, *exchange_));
  }
  return copy;
}

void LoadedPlan::PutCopied(const KvCopy& copy, worker::v1::InlineOutputs& outputs) const {
  PutKv(*exchange_, kv_layout_, copy, attends_, *outputs.mutable_kv());
}

absl::Status LoadedPlan::ReadStep(uint32_t lane_idx, uint64_t step_id) {
  Lane& lane = lanes_[lane_idx];
  lane.parsed = false;
  TANDEM_ASSIGN_OR_RETURN(lane.step, ParseStep(exchange_->Area(lane_idx, exchange_->layout.step),
                                               limits_, lane.storage));
  if (lane.step.header.step_id != step_id) {
    return absl::InvalidArgumentError(absl::StrFormat("lane %d holds step %d, the call is for %d",
                                                      lane_idx, lane.step.header.step_id, step_id));
  }
  TANDEM_RETURN_IF_ERROR(CheckFeeds(lane.step));
  lane.parsed = true;
  last_step_ = step_id;
  last_outputs_ = lane.step.header.num_outputs;
  return absl::OkStatus();
}

absl::Status LoadedPlan::CheckFeeds(const StepBatch& step) const {
  const uint64_t after = step.header.after_step;
  if (after == 0) return absl::OkStatus();
  if (!feeds_steps_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "step %d is fed from step %d, which this worker cannot do", step.header.step_id, after));
  }
  if (after != last_step_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step %d is fed from step %d, the one before it was step %d",
                        step.header.step_id, after, last_step_));
  }
  for (uint32_t r = 0; r < step.rows.size(); ++r) {
    if (step.rows[r].feed <= last_outputs_) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("step %d: row %d takes the guess of output %d, step %d has %d",
                        step.header.step_id, r, step.rows[r].feed - 1, after, last_outputs_));
  }
  return absl::OkStatus();
}

}  // namespace tandem

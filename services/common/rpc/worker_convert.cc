#include "services/common/rpc/worker_convert.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/step/kv_copy.h"
#include "services/common/tensor/kv_format.h"

namespace tandem {
namespace {

constexpr uint32_t kMaxTableLen = 1u << 26;
constexpr uint32_t kMaxBlockTokens = 4096;
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxDeviceBytes = 256;

absl::Status LimitWithin(const char* name, uint32_t value, uint32_t low, uint32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("limits: %s is %d, must be in [%d, %d]", name, value, low, high));
}

absl::StatusOr<uint32_t> PictureRows(const ModelConfig& config) {
  if (config.vision.has_value()) return config.vision->tokens_per_image;
  return absl::InvalidArgumentError("limits: pictures for a model without a vision encoder");
}

// Formats that this side knows.
std::vector<DType> KnownDTypes(const google::protobuf::RepeatedField<uint32_t>& numbers) {
  std::vector<DType> dtypes;
  for (const uint32_t number : numbers) {
    if (number < kNumDTypes) dtypes.push_back(static_cast<DType>(number));
  }
  return dtypes;
}

}  // namespace

worker::v1::StageKind ToProto(StageKind kind) {
  return static_cast<worker::v1::StageKind>(static_cast<int>(kind) + 1);
}

worker::v1::DescribeResponse ToProto(const WorkerDescription& description) {
  worker::v1::DescribeResponse proto;
  proto.set_protocol_version(kWorkerProtocolVersion);
  proto.set_name(description.name);
  proto.set_device(description.device);
  proto.set_driver(description.driver);
  proto.set_kind(description.kind == DeviceKind::kNpu ? worker::v1::DEVICE_KIND_NPU
                                                      : worker::v1::DEVICE_KIND_GPU);
  proto.set_emulated(description.emulated);
  for (const StageKind kind : description.stages) proto.add_stages(ToProto(kind));
  for (const DType dtype : description.weight_dtypes) {
    proto.add_weight_dtypes(static_cast<uint32_t>(dtype));
  }
  for (const uint32_t head_dim : description.head_dims) proto.add_head_dims(head_dim);
  for (const DType dtype : description.kv_dtypes) {
    proto.add_kv_dtypes(static_cast<uint32_t>(dtype));
  }
  for (const DType dtype : description.attend_port_dtypes) {
    proto.add_attend_port_dtypes(static_cast<uint32_t>(dtype));
  }
  for (const DType dtype : description.matrix_port_dtypes) {
    proto.add_matrix_port_dtypes(static_cast<uint32_t>(dtype));
  }
  proto.set_max_rows(description.max_rows);
  proto.set_memory_bytes(description.memory_bytes);
  proto.set_memory_available_bytes(description.memory_available_bytes);
  proto.set_pid(::getpid());
  proto.set_feeds_steps(description.feeds_steps);
  proto.set_takes_pictures(description.takes_pictures);
  proto.set_copies_kv(description.copies_kv);
  proto.set_operations_per_second(description.operations_per_second);
  return proto;
}

absl::StatusOr<WorkerDescription> DescriptionFromProto(const worker::v1::DescribeResponse& proto) {
  // Names go to logs, labels of metrics and terminals, and may come from another host.
  const std::string name = ClientText(proto.name(), kMaxNameBytes);
  if (proto.protocol_version() != kWorkerProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "worker '%s' speaks protocol version %d, this gateway %d; run the same release of both",
        name, proto.protocol_version(), kWorkerProtocolVersion));
  }
  if (proto.name().empty()) return absl::InvalidArgumentError("a worker has no name");
  WorkerDescription description;
  description.name = name;
  description.device = ClientText(proto.device(), kMaxDeviceBytes);
  description.driver = ClientText(proto.driver(), kMaxDeviceBytes);
  switch (proto.kind()) {
    case worker::v1::DEVICE_KIND_GPU:
      description.kind = DeviceKind::kGpu;
      break;
    case worker::v1::DEVICE_KIND_NPU:
      description.kind = DeviceKind::kNpu;
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrFormat("worker '%s' has device kind %d", name, static_cast<int>(proto.kind())));
  }
  description.emulated = proto.emulated();
  for (const int stage : proto.stages()) {
    if (stage < 1 || stage > kNumStageKinds) {
      return absl::InvalidArgumentError(
          absl::StrFormat("worker '%s' runs stage %d, of %d", name, stage, kNumStageKinds));
    }
    description.stages.push_back(static_cast<StageKind>(stage - 1));
  }
  description.weight_dtypes = KnownDTypes(proto.weight_dtypes());
  description.head_dims.assign(proto.head_dims().begin(), proto.head_dims().end());
  description.kv_dtypes = KnownDTypes(proto.kv_dtypes());
  description.attend_port_dtypes = KnownDTypes(proto.attend_port_dtypes());
  description.matrix_port_dtypes = KnownDTypes(proto.matrix_port_dtypes());
  description.max_rows = proto.max_rows();
  description.memory_bytes = proto.memory_bytes();
  description.memory_available_bytes = proto.memory_available_bytes();
  description.feeds_steps = proto.feeds_steps();
  description.takes_pictures = proto.takes_pictures();
  description.copies_kv = proto.copies_kv();
  if (proto.operations_per_second() > 0) {
    description.operations_per_second = proto.operations_per_second();
  }
  return description;
}

worker::v1::Segment ToProto(const Segment& segment) {
  worker::v1::Segment proto;
  proto.set_index(segment.index);
  proto.set_first_ordinal(segment.first_ordinal);
  proto.set_last_ordinal(segment.last_ordinal);
  proto.set_inputs(segment.inputs);
  proto.set_outputs(segment.outputs);
  return proto;
}

absl::StatusOr<std::vector<Segment>> SegmentsFromProto(const worker::v1::LoadPlanRequest& request,
                                                       uint32_t num_layers) {
  constexpr PortMask kAllPorts = (1u << kNumPorts) - 1;
  if (request.segments_size() == 0) return absl::InvalidArgumentError("the plan has no segment");
  std::vector<Segment> segments;
  for (const worker::v1::Segment& proto : request.segments()) {
    const bool after_previous =
        segments.empty() || (proto.index() > segments.back().index &&
                             proto.first_ordinal() > segments.back().last_ordinal);
    if (!after_previous || proto.first_ordinal() > proto.last_ordinal() ||
        proto.last_ordinal() > VisionOrdinal(num_layers) ||
        proto.index() >= NumStages(num_layers) || (proto.inputs() & ~kAllPorts) != 0 ||
        (proto.outputs() & ~kAllPorts) != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "plan: segment %d has stages [%d, %d], ports %#x to %#x: must follow the one before and "
          "lie within %d stages",
          proto.index(), proto.first_ordinal(), proto.last_ordinal(), proto.inputs(),
          proto.outputs(), NumStages(num_layers)));
    }
    Segment segment;
    segment.index = proto.index();
    segment.first_ordinal = proto.first_ordinal();
    segment.last_ordinal = proto.last_ordinal();
    segment.inputs = proto.inputs();
    segment.outputs = proto.outputs();
    segments.push_back(segment);
  }
  if (segments.back().last_ordinal == VisionOrdinal(num_layers) &&
      !IsVisionPlan(segments, num_layers)) {
    return absl::InvalidArgumentError("plan: Vision is beside other stages, must be alone");
  }
  return segments;
}

bool IsVisionPlan(const std::vector<Segment>& segments, uint32_t num_layers) {
  return segments.size() == 1 && segments[0].first_ordinal == VisionOrdinal(num_layers);
}

worker::v1::StepLimits ToProto(const StepLimits& limits) {
  worker::v1::StepLimits proto;
  proto.set_max_rows(limits.max_rows);
  proto.set_max_sequences(limits.max_sequences);
  proto.set_max_outputs(limits.max_outputs);
  proto.set_max_logit_outputs(limits.max_logit_outputs);
  proto.set_max_table_len(limits.max_table_len);
  proto.set_block_tokens(limits.block_tokens);
  for (const uint32_t num_blocks : limits.num_blocks) proto.add_num_blocks(num_blocks);
  proto.set_kv_dtype(static_cast<uint32_t>(limits.kv_dtype));
  proto.set_max_pictures(limits.max_pictures);
  proto.set_kv_area_bytes(limits.kv_area_bytes);
  proto.set_context_len(limits.context_len);
  return proto;
}

absl::StatusOr<StepLimits> LimitsFromProto(const worker::v1::StepLimits& proto,
                                           const ModelConfig& config, uint32_t max_rows) {
  TANDEM_RETURN_IF_ERROR(LimitWithin("max_rows", proto.max_rows(), 1, max_rows));
  TANDEM_RETURN_IF_ERROR(LimitWithin("max_sequences", proto.max_sequences(), 1, max_rows));
  TANDEM_RETURN_IF_ERROR(LimitWithin("max_outputs", proto.max_outputs(), 1, max_rows));
  TANDEM_RETURN_IF_ERROR(
      LimitWithin("max_logit_outputs", proto.max_logit_outputs(), 0, proto.max_outputs()));
  TANDEM_RETURN_IF_ERROR(LimitWithin("max_table_len", proto.max_table_len(), 1, kMaxTableLen));
  TANDEM_RETURN_IF_ERROR(LimitWithin("block_tokens", proto.block_tokens(), 1, kMaxBlockTokens));
  TANDEM_RETURN_IF_ERROR(
      LimitWithin("num_blocks's length", proto.num_blocks_size(), kNumKvGroups, kNumKvGroups));
  if (!IsKvDType(static_cast<DType>(proto.kv_dtype()))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("limits: no KV cache is of number format %d", proto.kv_dtype()));
  }
  StepLimits limits;
  limits.max_rows = proto.max_rows();
  limits.max_sequences = proto.max_sequences();
  limits.max_outputs = proto.max_outputs();
  limits.max_logit_outputs = proto.max_logit_outputs();
  limits.max_table_len = proto.max_table_len();
  limits.block_tokens = proto.block_tokens();
  limits.kv_dtype = static_cast<DType>(proto.kv_dtype());
  limits.vocab_size = config.vocab_size;
  limits.context_len = proto.context_len() == 0 ? config.context_len
                                                : std::min(proto.context_len(), config.context_len);
  limits.sliding_window = config.sliding_window;
  for (int group = 0; group < kNumKvGroups; ++group) {
    TANDEM_RETURN_IF_ERROR(LimitWithin("num_blocks", proto.num_blocks(group), 1, kNoBlock - 1));
    limits.num_blocks[group] = proto.num_blocks(group);
  }
  if (proto.kv_area_bytes() > kMaxKvAreaBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "limits: kv_area_bytes is %d, must be at most %d", proto.kv_area_bytes(), kMaxKvAreaBytes));
  }
  limits.kv_area_bytes = proto.kv_area_bytes();
  if (proto.max_pictures() == 0) return limits;
  TANDEM_ASSIGN_OR_RETURN(limits.picture_rows, PictureRows(config));
  TANDEM_RETURN_IF_ERROR(
      LimitWithin("max_pictures", proto.max_pictures(), 0, limits.max_rows / limits.picture_rows));
  limits.max_pictures = proto.max_pictures();
  return limits;
}

absl::StatusOr<StepLimits> VisionLimitsFromProto(const worker::v1::StepLimits& proto,
                                                 const ModelConfig& config) {
  TANDEM_ASSIGN_OR_RETURN(const uint32_t picture_rows, PictureRows(config));
  TANDEM_RETURN_IF_ERROR(LimitWithin("max_rows of a vision plan", proto.max_rows(), 0, 0));
  TANDEM_RETURN_IF_ERROR(LimitWithin("max_pictures", proto.max_pictures(), 1, kMaxVisionPictures));
  return VisionLimits(proto.max_pictures(), picture_rows);
}

worker::v1::LoadPlanReport ToProto(const LoadReport& report) {
  worker::v1::LoadPlanReport proto;
  proto.set_weight_import(std::string(ImportPathName(report.weight_import)));
  proto.set_exchange_import(std::string(ImportPathName(report.exchange_import)));
  proto.set_weight_bytes(report.weight_bytes);
  proto.set_kv_bytes(report.kv_bytes);
  proto.set_note(report.note);
  proto.set_tuning(report.tuning);
  return proto;
}

}  // namespace tandem

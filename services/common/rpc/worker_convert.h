// The worker's contract on the wire <-> the project's own types.  What comes in is checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/common/plan/planner.h"
#include "services/common/plan/stage.h"
#include "services/common/step/step_batch.h"
#include "services/common/worker/worker.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// Version of tandem.worker.v1 and of the exchange layout it speaks of; both sides must agree.
inline constexpr uint32_t kWorkerProtocolVersion = 10;
// Steps that may be under way at once: bounds LoadPlanRequest.num_lanes.
inline constexpr uint32_t kMaxLanes = 16;
// Pictures that a step of a vision plan may have.
inline constexpr uint32_t kMaxVisionPictures = 16;

worker::v1::StageKind ToProto(StageKind kind);

worker::v1::DescribeResponse ToProto(const WorkerDescription& description);
// FAILED_PRECONDITION: another protocol version.  INVALID_ARGUMENT: an unknown stage, an empty
// name.  Number formats unknown here are left out.
absl::StatusOr<WorkerDescription> DescriptionFromProto(const worker::v1::DescribeResponse& proto);

worker::v1::Segment ToProto(const Segment& segment);
// INVALID_ARGUMENT names the first segment that is empty, out of order or past the last stage, or
// that has Vision and another stage beside it.  Segment::worker is 0.
absl::StatusOr<std::vector<Segment>> SegmentsFromProto(const worker::v1::LoadPlanRequest& request,
                                                       uint32_t num_layers);
// Whether the segments are those of a vision plan.
bool IsVisionPlan(const std::vector<Segment>& segments, uint32_t num_layers);

worker::v1::StepLimits ToProto(const StepLimits& limits);
// Vocabulary, context, window and rows of a picture are the model's.  INVALID_ARGUMENT names the
// limit that is zero or over its bound: `max_rows`, and as many sequences, outputs and rows of
// pictures.
absl::StatusOr<StepLimits> LimitsFromProto(const worker::v1::StepLimits& proto,
                                           const ModelConfig& config, uint32_t max_rows);
// The same of a vision plan: at most kMaxVisionPictures, and nothing else.
absl::StatusOr<StepLimits> VisionLimitsFromProto(const worker::v1::StepLimits& proto,
                                                 const ModelConfig& config);

worker::v1::LoadPlanReport ToProto(const LoadReport& report);

}  // namespace tandem

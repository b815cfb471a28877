// Measures a model's stages on the device, at load.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "services/gpu_worker/stages/stage_recorder.h"
#include "services/gpu_worker/stages/stage_times.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// Measures the stages of `segments` with 1, 2, 4 ... rows, up to the limit of a step.  Does not
// measure more rows where those measured before predict over `longest_seconds`: then time grows
// with the rows.  Attention is measured as deep in the context as the KV cache allows, for rows of
// one sequence and for as many sequences as there may be.  One of several equal stages stands for
// all of them.
//
// Overwrites the buffers, which must be unused.  UNAVAILABLE: the device is lost.
absl::StatusOr<StageTimes> MeasureStages(const vulkan::Device& device,
                                         const RecordingContext& context,
                                         const std::vector<Segment>& segments,
                                         vulkan::Timeline& timeline, double longest_seconds);

}  // namespace tandem::gpu

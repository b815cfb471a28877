// The steps that a Tuner runs: rows without tokens or requests, over a KV cache that holds nothing.
#pragma once

#include "services/common/step/step_batch.h"
#include "services/gpu_worker/kernels/tuning_settings.h"
#include "services/gpu_worker/stages/model_buffers.h"

namespace tandem::gpu {

// Whether a step of the case is within the limits of the model's steps.
bool Fits(const TuningCase& tuning_case, const StepLimits& limits);

// Writes the case's step to `lane`, as attention's `rules` want it.  A row bucket
// above the limits is not full.  REQUIRES Fits.
void WriteTuningStep(const TuningCase& tuning_case, const StepLimits& limits,
                     const TileRules& rules, const LaneBuffers& lane);

}  // namespace tandem::gpu

// What a segment reads and writes, between an exchange region and messages: for workers on other
// hosts, which have an exchange region of their own.
//
//   gateway's region --PutInputs--> ExecuteRequest  --TakeStep, TakeInputs--> worker's region
//   gateway's region <--TakeOutputs-- ExecuteResponse <--PutOutputs-- worker's region
//
// A row of a port is copied as it lies; of the candidates what the step asks for.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/plan/stage.h"
#include "services/common/worker/worker.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// The header of the step in a lane that this process has written.  INTERNAL: counts beyond the
// limits, which whoever else maps the region has put there.
absl::StatusOr<StepHeader> HeaderOf(const Exchange& exchange, uint32_t lane,
                                    const StepLimits& limits);

// Whether the segment ends with Head.
bool EndsWithHead(const Segment& segment, uint32_t num_layers);

// Bytes of a segment's largest request or answer under limits, short of a few hundred.
uint64_t LargestInlineMessage(const Exchange& exchange, const Segment& segment, bool head);

// Fills `inputs`: the step, if this is its first call to the worker, the ports' rows, soft tokens for
// the segment with Embed, pixels for Vision, and the masks for the segment with the head.
void PutInputs(const Exchange& exchange, uint32_t lane, const Segment& segment,
               const StepHeader& header, bool with_step, bool head,
               worker::v1::InlineInputs& inputs);
// Puts the step's bytes into a lane's step area, for ParseStep to check.  INVALID_ARGUMENT: there
// are fewer or more than its header says, or than the area takes.
absl::Status TakeStep(const worker::v1::InlineInputs& inputs, const Exchange& exchange,
                      uint32_t lane);
// Puts the ports' rows, pictures and the masks into a lane.  INVALID_ARGUMENT: not the segment's
// ports, or not as many rows, pictures or masks as the step has; nothing has been written then.
// REQUIRES a header that has been checked.
absl::Status TakeInputs(const worker::v1::InlineInputs& inputs, const Exchange& exchange,
                        uint32_t lane, const Segment& segment, const StepHeader& header, bool head);

// Fills `outputs`.  REQUIRES a header that has been checked.
void PutOutputs(const Exchange& exchange, uint32_t lane, const Segment& segment,
                const StepHeader& header, bool head, worker::v1::InlineOutputs& outputs);
// Puts an answer's rows and results into a lane.  INTERNAL: a size that the step does not have;
// nothing has been written then.  What the results say is not checked.  REQUIRES a header from
// HeaderOf.
absl::Status TakeOutputs(const worker::v1::InlineOutputs& outputs, const Exchange& exchange,
                         uint32_t lane, const Segment& segment, const StepHeader& header,
                         bool head);

}  // namespace tandem

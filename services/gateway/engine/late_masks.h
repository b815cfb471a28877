// Whether constrained answers go on from the device's speculative tokens, so that a step is queued
// before its masks are known.
//
//   masks first  step 1 |decide, masks| step 2 = token and what it forces |...
//   late masks   step 1 | step 2 = token  | step 3 = what it forces | ...
//                       |decide, masks|
//
// The device does not wait then, but tokens that a token forces come a step later than they could.
#pragma once

#include "absl/time/time.h"

namespace tandem::gateway {

// Learns from the steps of constrained answers.  Single-thread.
class LateMasks {
 public:
  // A token was decided; `forces`: others must follow it.
  void TokenDecided(bool forces) { forcing_ += kNewest * ((forces ? 1.0 : 0.0) - forcing_); }
  // A step took so long on the device, and to take its results and make the masks of the next so long.
  void StepTook(absl::Duration step, absl::Duration masks) {
    step_ += kNewest * (step - step_);
    masks_ += kNewest * (masks - masks_);
  }
  // Whether the steps that late masks cost take less than the waiting they save.
  bool Pay() const { return forcing_ * step_ < masks_ + kHop; }

 private:
  static constexpr double kNewest = 1.0 / 32;
  // Of results to the gateway and of the next step to the device: 0.24 ms with one stream and 0.4 to
  // 0.7 ms with 32 (H200, docs/constraints.md).
  static constexpr absl::Duration kHop = absl::Microseconds(300);
  double forcing_ = 1.0;  // share of tokens
  absl::Duration step_, masks_;
};

}  // namespace tandem::gateway

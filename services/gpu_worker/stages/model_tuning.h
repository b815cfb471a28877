// Chooses a model's tuning: a table measured before, one measured now, or a shipped one.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gpu_worker/kernels/tuning_table.h"

namespace tandem::gpu {

enum class TuneMode : uint8_t {
  kOff,         // neither measure nor read tables
  kFirstStart,  // read the model's table; where there is none, measure for a moment and keep one:
                // not where a hand-made table is shipped that was
                // measured, as for software devices
  kNow,         // measure, and replace the table
};
// "off", "first-start", "now"; INVALID_ARGUMENT lists them.
absl::StatusOr<TuneMode> ParseTuneMode(std::string_view text);

struct TuneOptions {
  TuneMode mode = TuneMode::kFirstStart;
  std::string folder;                             // of tables; empty: as kOff
  absl::Duration first_start = absl::Seconds(2);  // device time
  absl::Duration now = absl::Seconds(30);
};

struct ModelTuning {
  TuningKey key;
  bool measure = false;  // is yet to be measured
  // For people: "tuned: FILE", "shipped: NVIDIA Hopper", "default"; then the tables that were
  // refused.
  std::string description;
};

// Reads the table of `shapes` and applies it to `tuning`.  An unusable table is reported in the log
// and the description, and leaves `tuning` unchanged.
ModelTuning ChooseTuning(const TuneOptions& options, const vulkan::DeviceInfo& info,
                         std::string shapes, Tuning& tuning);

}  // namespace tandem::gpu

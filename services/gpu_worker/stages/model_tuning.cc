#include "services/gpu_worker/stages/model_tuning.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/gpu_worker/kernels/shipped_tables.h"

namespace tandem::gpu {

absl::StatusOr<TuneMode> ParseTuneMode(std::string_view text) {
  if (text == "off") return TuneMode::kOff;
  if (text == "first-start") return TuneMode::kFirstStart;
  if (text == "now") return TuneMode::kNow;
  return absl::InvalidArgumentError(
      absl::StrFormat("tune \"%s\": off, first-start or now", std::string(text)));
}

ModelTuning ChooseTuning(const TuneOptions& options, const vulkan::DeviceInfo& info,
                         std::string shapes, Tuning& tuning) {
  const ShippedTable shipped_table = FindShippedTable(info);
  const std::string shipped(shipped_table.name);
  ModelTuning chosen{.key = MakeTuningKey(info, std::move(shapes)),
                     .description = shipped.empty() ? "default" : "shipped: " + shipped};
  if (options.folder.empty() || options.mode == TuneMode::kOff) return chosen;
  if (options.mode == TuneMode::kNow) {
    chosen.measure = true;
    return chosen;
  }
  const std::string path = options.folder + "/" + chosen.key.FileName();
  const auto table = ReadTuningTable(options.folder, chosen.key);
  absl::Status status = table.status();
  if (status.ok()) {
    status = ApplyTuningTable(*table, chosen.key, info, tuning);
    if (status.ok()) {
      chosen.description = "tuned: " + path;
      return chosen;
    }
    status =
        absl::Status(status.code(), absl::StrFormat("%s: %s", path, std::string(status.message())));
  }
  if (absl::IsNotFound(status)) {
    chosen.measure = !shipped_table.measured;
    return chosen;
  }
  LogWarning("tuning table refused", {{"reason", std::string(status.message())},
                                      {"remedy", "tandem tune, or remove the file"}});
  chosen.description += absl::StrFormat("; refused: %s", std::string(status.message()));
  return chosen;
}

}  // namespace tandem::gpu

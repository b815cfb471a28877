// Names of the policies (planner.h).
#include "absl/strings/str_format.h"
#include "services/common/plan/planner.h"

namespace tandem {

absl::StatusOr<NpuPolicy> ParseNpuPolicy(std::string_view text) {
  for (const NpuPolicy policy : {NpuPolicy::kAuto, NpuPolicy::kRequire, NpuPolicy::kPrefer,
                                 NpuPolicy::kEmulate, NpuPolicy::kOff}) {
    if (text == NpuPolicyName(policy)) return policy;
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "npu policy \"%s\": must be auto, require, prefer, emulate or off", std::string(text)));
}

std::string_view NpuPolicyName(NpuPolicy policy) {
  switch (policy) {
    case NpuPolicy::kAuto:
      return "auto";
    case NpuPolicy::kRequire:
      return "require";
    case NpuPolicy::kPrefer:
      return "prefer";
    case NpuPolicy::kEmulate:
      return "emulate";
    case NpuPolicy::kOff:
      return "off";
  }
  return "?";
}

absl::Status RequireNpuForPrompts(NpuPolicy& policy) {
  if (policy == NpuPolicy::kAuto) policy = NpuPolicy::kRequire;
  if (policy == NpuPolicy::kRequire || policy == NpuPolicy::kEmulate) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "prompts on an NPU need one, and --npu is %s: give --npu require or emulate, or leave it out",
      std::string(NpuPolicyName(policy))));
}

absl::StatusOr<GpuPolicy> ParseGpuPolicy(std::string_view text) {
  for (const GpuPolicy policy : {GpuPolicy::kRequire, GpuPolicy::kPrefer, GpuPolicy::kSoftware}) {
    if (text == GpuPolicyName(policy)) return policy;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("gpu policy \"%s\": must be require, prefer or software", std::string(text)));
}

std::string_view GpuPolicyName(GpuPolicy policy) {
  switch (policy) {
    case GpuPolicy::kRequire:
      return "require";
    case GpuPolicy::kPrefer:
      return "prefer";
    case GpuPolicy::kSoftware:
      return "software";
  }
  return "?";
}

}  // namespace tandem

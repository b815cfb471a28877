#include "tools/tandem/commands/placement_table.h"

#include "absl/strings/str_format.h"
#include "services/common/base/text_table.h"

namespace tandem {
namespace {

// What its steps take now beside what they took when it was tried.
std::string Now(const v1::PlacementStatus& placement) {
  if (placement.measured_slowdown() == 0.0) return "not run";
  return absl::StrFormat("%.2f times as long", placement.measured_slowdown());
}

std::string Energy(const v1::PlacementStatus& placement) {
  if (placement.predicted_joules_per_token() == 0.0) return "-";
  return absl::StrFormat("%.3g", placement.predicted_joules_per_token());
}

}  // namespace

std::string PlacementTable(const v1::GetStatusResponse& status) {
  if (status.placements_size() == 0) return "";
  TextTable table({false, false, true, true, true, true, false});
  table.Add(
      {"PLACEMENT", "IN FORCE", "STREAMS", "DECODE tok/s", "PROMPTS tok/s", "J/token", "NOW"});
  for (const v1::PlacementStatus& placement : status.placements()) {
    table.Add({placement.placement(), placement.in_force() ? "yes" : "no",
               absl::StrFormat("%d", placement.streams()),
               absl::StrFormat("%.1f", placement.predicted_decode_tokens_per_second()),
               absl::StrFormat("%.1f", placement.predicted_prompt_tokens_per_second()),
               Energy(placement), Now(placement)});
  }
  return table.Print();
}

}  // namespace tandem

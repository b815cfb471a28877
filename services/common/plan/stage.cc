#include "services/common/plan/stage.h"

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"

namespace tandem {

std::string StageName(Stage stage) {
  switch (stage.kind) {
    case StageKind::kEmbed:
      return "Embed";
    case StageKind::kQkv:
      return absl::StrFormat("Qkv(%d)", stage.layer_idx);
    case StageKind::kAttend:
      return absl::StrFormat("Attend(%d)", stage.layer_idx);
    case StageKind::kOut:
      return absl::StrFormat("Out(%d)", stage.layer_idx);
    case StageKind::kFfn:
      return absl::StrFormat("Ffn(%d)", stage.layer_idx);
    case StageKind::kHead:
      return "Head";
  }
  return "?";
}

uint32_t StageOrdinal(Stage stage, uint32_t num_layers) {
  if (stage.kind == StageKind::kEmbed) return 0;
  if (stage.kind == StageKind::kHead) return 4 * num_layers + 1;
  TANDEM_CHECK(stage.layer_idx < num_layers);
  return 4 * stage.layer_idx + static_cast<uint32_t>(stage.kind);
}

Stage StageAt(uint32_t ordinal, uint32_t num_layers) {
  TANDEM_CHECK(ordinal < NumStages(num_layers));
  if (ordinal == 0) return {StageKind::kEmbed, 0};
  if (ordinal == 4 * num_layers + 1) return {StageKind::kHead, 0};
  return {static_cast<StageKind>((ordinal - 1) % 4 + 1), (ordinal - 1) / 4};
}

}  // namespace tandem

#include "services/common/plan/stage.h"

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"

namespace tandem {

std::string_view StageKindName(StageKind kind) {
  constexpr std::string_view kNames[kNumStageKinds] = {"Embed", "Qkv",  "Attend", "Out",
                                                       "Ffn",   "Head", "Vision"};
  return kNames[static_cast<int>(kind)];
}

std::string StageName(Stage stage) {
  const std::string kind(StageKindName(stage.kind));
  if (!IsOfLayer(stage.kind)) return kind;
  return absl::StrFormat("%s(%d)", kind, stage.layer_idx);
}

uint32_t StageOrdinal(Stage stage, uint32_t num_layers) {
  if (stage.kind == StageKind::kEmbed) return 0;
  if (stage.kind == StageKind::kHead) return 4 * num_layers + 1;
  if (stage.kind == StageKind::kVision) return VisionOrdinal(num_layers);
  TANDEM_CHECK(stage.layer_idx < num_layers);
  return 4 * stage.layer_idx + static_cast<uint32_t>(stage.kind);
}

Stage StageAt(uint32_t ordinal, uint32_t num_layers) {
  TANDEM_CHECK(ordinal <= VisionOrdinal(num_layers));
  if (ordinal == 0) return {StageKind::kEmbed, 0};
  if (ordinal == 4 * num_layers + 1) return {StageKind::kHead, 0};
  if (ordinal == VisionOrdinal(num_layers)) return {StageKind::kVision, 0};
  return {static_cast<StageKind>((ordinal - 1) % 4 + 1), (ordinal - 1) / 4};
}

PortMask InputsOf(StageKind kind) {
  switch (kind) {
    case StageKind::kEmbed:
    case StageKind::kVision:
      return 0;
    case StageKind::kQkv:
    case StageKind::kHead:
      return static_cast<PortMask>(Port::kResidual);
    case StageKind::kAttend:
      return Port::kQ | Port::kK | Port::kV;
    case StageKind::kOut:
      return static_cast<PortMask>(Port::kAttention);
    case StageKind::kFfn:
      return Port::kResidual | Port::kProjection;
  }
  return 0;
}

PortMask OutputsOf(StageKind kind) {
  switch (kind) {
    case StageKind::kEmbed:
    case StageKind::kFfn:
      return static_cast<PortMask>(Port::kResidual);
    case StageKind::kQkv:
      return Port::kQ | Port::kK | Port::kV;
    case StageKind::kAttend:
      return static_cast<PortMask>(Port::kAttention);
    case StageKind::kOut:
      return static_cast<PortMask>(Port::kProjection);
    case StageKind::kHead:
    case StageKind::kVision:
      return 0;
  }
  return 0;
}

}  // namespace tandem

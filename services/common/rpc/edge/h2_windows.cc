#include "services/common/rpc/edge/h2_windows.h"

namespace tandem {
namespace {

constexpr uint32_t kSettingsInitialWindowSize = 4;

}  // namespace

H2Windows::Grant H2Windows::OnClientPayload(const H2Frame& frame, std::string_view piece) {
  const bool settings = frame.type == H2FrameType::kSettings;
  if (!settings && frame.type != H2FrameType::kWindowUpdate) return {};
  Grant grant;
  for (const char c : piece) {
    field_[num_field_bytes_++] = static_cast<uint8_t>(c);
    if (num_field_bytes_ < (settings ? 6u : 4u)) continue;
    num_field_bytes_ = 0;
    const auto at = [this](size_t i) { return static_cast<uint32_t>(field_[i]); };
    if (settings) {
      const uint32_t value = at(2) << 24 | at(3) << 16 | at(4) << 8 | at(5);
      if ((at(0) << 8 | at(1)) == kSettingsInitialWindowSize) initial_ = value;
    } else {
      grant = {.stream = frame.stream,
               .bytes = (at(0) & 0x7f) << 24 | at(1) << 16 | at(2) << 8 | at(3)};
      if (grant.stream == 0) connection_ += grant.bytes;
    }
  }
  return grant;
}

}  // namespace tandem

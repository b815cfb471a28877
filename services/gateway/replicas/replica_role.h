// What a replica computes.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem::gateway {

enum class ReplicaRole : uint8_t {
  kBoth,
  kPrompts,  // requests go on elsewhere when their prompts are computed
  kDecode,   // goes on with them; computes prompts that are short, or that it knows most of
};

// "prompts" or "decode"; empty for kBoth.
inline std::string_view RoleName(ReplicaRole role) {
  constexpr std::string_view kNames[] = {"", "prompts", "decode"};
  return kNames[static_cast<size_t>(role)];
}

}  // namespace tandem::gateway

// An ELF of control code, as XRT takes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::npu {

// OK where this build has AMD's libaiebu; else UNIMPLEMENTED, with the way out.
absl::Status CheckControlElf();

// Text, symbols and relocations of a transaction (control/transaction.h).  UNIMPLEMENTED: as CheckControlElf;
// INVALID_ARGUMENT: what libaiebu says of it.
absl::StatusOr<std::vector<char>> MakeControlElf(std::span<const uint32_t> words);

}  // namespace tandem::npu

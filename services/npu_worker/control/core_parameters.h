// Runtime parameters of a core: words in its data memory, and a lock that the core waits for.
//
// Control code writes the words and then sets the lock to 1.  The core takes the lock (1 to 0),
// reads the words, does the work that they describe and waits for the lock again.  A package says
// where its kernels have both (package/README.md).
#pragma once

#include <cstdint>
#include <span>

#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/kernels/aie/core_program.h"

namespace tandem::npu {

inline constexpr uint32_t kMaxParameters = 16;  // words
inline constexpr uint32_t kFirstCoreRow = 2;
inline constexpr uint32_t kCoreMemoryBytes = 65536;
inline constexpr uint32_t kCoreLocks = 16;

// Where a core has them.
struct ParameterPlace {
  uint32_t address = kCoreParameterAddress;  // in the core's data memory: its last 1 KiB
  uint32_t lock = kCoreParameterLock;
  bool operator==(const ParameterPlace&) const = default;
};
inline constexpr uint32_t kParameterAddress = ParameterPlace{}.address;
inline constexpr uint32_t kParameterLock = ParameterPlace{}.lock;

// Register of a core's lock.
constexpr uint32_t CoreLockAddress(Tile core, uint32_t lock) {
  return TileAddress(core, 0x1F000 + 16 * lock);
}

// REQUIRES 1 to kMaxParameters words.
void SetParameters(Tile core, std::span<const uint32_t> words, Transaction& transaction,
                   const ParameterPlace& place = {});

}  // namespace tandem::npu

#pragma once

#include <cstdint>

namespace tandem {

// 64 random bits, for seeds and ids that nobody else has; not for secrets.  Any thread.
uint64_t RandomBits();

}  // namespace tandem

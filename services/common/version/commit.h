#pragma once

namespace tandem {

// The commit that this program was built from, with "-dirty" after it if files differed.  "unknown"
// in tests, and in programs built outside a git checkout without TANDEM_COMMIT.
// cmake/TandemVersion.cmake defines it in each program.
const char* Commit();

}  // namespace tandem

#pragma once

namespace tandem {

// The commit that this program was built from, with "-dirty" after it if files differed.  "unknown"
// in tests, and in programs built outside a git checkout without TANDEM_COMMIT.  Defined anew in
// each program by cmake/TandemVersion.cmake.
const char* Commit();

}  // namespace tandem

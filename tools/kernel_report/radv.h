// Where AMD's compiler is: Mesa's RADV 25.0 of this machine, or the one that scripts/fetch-radv
// unpacked, which needs the C library it came with.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tandem::report {

// The path of RADV's library.  Where the library needs another C library than the program's, the
// program starts itself again with that one and the same arguments: the call does not return.
// `folder`: of scripts/fetch-radv; empty: .deps/radv above the program or the working folder, then
// the machine's.  NOT_FOUND says how to get it.
absl::StatusOr<std::string> PrepareRadv(const std::string& folder, char** argv);

}  // namespace tandem::report

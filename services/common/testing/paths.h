// Absolute paths of what tests read and run.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// Each gives the folder itself for an empty path.
std::string SourcePath(std::string_view path);    // a file of the repository, such as "models/demo"
std::string BuildPath(std::string_view path);     // what the build made, such as "bin/tandem"
std::string TestDataPath(std::string_view path);  // tests/data unpacked, such as "demo.Q4_0.gguf"

}  // namespace tandem

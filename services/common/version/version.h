// What this program was built from.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

struct BuildInfo {
  std::string_view version;  // "0.2.0", CMake's project version
  std::string_view commit;   // see commit.h
  std::string_view
      build_type;             // "Release", "Debug", "RelWithDebInfo, sanitizers address,undefined"
  std::string_view compiler;  // "GCC 12.2.0"
};
const BuildInfo& GetBuildInfo();

// "0.2.0", with a terminating zero.
const char* Version();

// What `--version` prints, without a last newline: "tandem 0.2.0", the commit and the build.
std::string VersionText(std::string_view program);

}  // namespace tandem

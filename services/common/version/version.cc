#include "services/common/version/version.h"

#include "absl/strings/str_format.h"
#include "services/common/version/commit.h"

namespace tandem {
namespace {

#define TANDEM_TEXT_OF(value) #value
#define TANDEM_TEXT(macro) TANDEM_TEXT_OF(macro)
#ifdef __clang__
constexpr char kCompiler[] = "Clang " TANDEM_TEXT(__clang_major__) "." TANDEM_TEXT(
    __clang_minor__) "." TANDEM_TEXT(__clang_patchlevel__);
#else
constexpr char kCompiler[] = "GCC " TANDEM_TEXT(__GNUC__) "." TANDEM_TEXT(
    __GNUC_MINOR__) "." TANDEM_TEXT(__GNUC_PATCHLEVEL__);
#endif

}  // namespace

// A program's own definition wins; tests have this one.
__attribute__((weak)) const char* Commit() { return "unknown"; }

const char* Version() { return TANDEM_VERSION; }

const BuildInfo& GetBuildInfo() {
  static const BuildInfo info{.version = TANDEM_VERSION,
                              .commit = Commit(),
                              .build_type = TANDEM_BUILD_TYPE,
                              .compiler = kCompiler};
  return info;
}

std::string VersionText(std::string_view program) {
  const BuildInfo& info = GetBuildInfo();
  return absl::StrFormat("%s %s\ncommit: %s\nbuild: %s, %s", program, info.version, info.commit,
                         info.build_type, info.compiler);
}

}  // namespace tandem

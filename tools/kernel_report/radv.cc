#include "tools/kernel_report/radv.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "absl/strings/str_format.h"

namespace tandem::report {
namespace {

namespace fs = std::filesystem;

// In the environment of the program that was started again: the library to load.
constexpr const char* kPrepared = "TANDEM_KERNEL_REPORT_RADV";
constexpr const char* kLibrary = "libvulkan_radeon.so";
// The last series whose null device knows these chips: newer ones have none.
constexpr std::string_view kSeries = "Mesa 25.0.";
constexpr const char* kSystemFolders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                          "/usr/lib64", "/usr/lib"};

bool IsOfSeries(const fs::path& library) {
  std::ifstream file(library, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  return content.find(kSeries) != std::string::npos;
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// .deps/radv in `start` or above it; empty: nowhere.
fs::path FindFetched(fs::path start) {
  for (int level = 0; level < 8 && !start.empty(); ++level) {
    const fs::path folder = start / ".deps" / "radv";
    if (Exists(folder / "stamp")) return folder;
    if (start == start.parent_path()) break;
    start = start.parent_path();
  }
  return {};
}

// Starts the program with the loader beside the library; returns only if that fails.
absl::Status StartAnew(const fs::path& folder, const fs::path& program, char** argv) {
  const std::string loader = folder / "loader", libraries = folder / "lib";
  std::string path = libraries;
  for (const char* own : kSystemFolders) path += std::string(":") + own;
  ::setenv(kPrepared, (folder / "lib" / kLibrary).c_str(), 1);
  std::vector<char*> arguments;
  const std::string name = program;
  for (const std::string* text : {&loader, static_cast<const std::string*>(nullptr)}) {
    if (text != nullptr) arguments.push_back(const_cast<char*>(text->c_str()));
  }
  char library_path[] = "--library-path";
  arguments.push_back(library_path);
  arguments.push_back(path.data());
  arguments.push_back(const_cast<char*>(name.c_str()));
  for (char** argument = argv + 1; *argument != nullptr; ++argument) {
    arguments.push_back(*argument);
  }
  arguments.push_back(nullptr);
  ::execv(loader.c_str(), arguments.data());
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s cannot be started: %s; run scripts/fetch-radv", loader, std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::string> PrepareRadv(const std::string& folder, char** argv) {
  if (const char* prepared = std::getenv(kPrepared); prepared != nullptr) return prepared;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  fs::path fetched = folder;
  if (folder.empty()) {
    fetched = FindFetched(program.parent_path());
    if (fetched.empty()) fetched = FindFetched(fs::current_path(error));
  } else if (!Exists(fetched / "loader")) {
    return absl::NotFoundError(
        absl::StrFormat("--radv %s: no folder of scripts/fetch-radv", folder));
  }
  if (!fetched.empty()) return StartAnew(fetched, program, argv);
  for (const char* system : kSystemFolders) {
    const fs::path library = fs::path(system) / kLibrary;
    if (Exists(library) && IsOfSeries(library)) return library.string();
  }
  return absl::NotFoundError(
      "no RADV of Mesa 25.0, whose null device compiles for these chips: run scripts/fetch-radv");
}

}  // namespace tandem::report

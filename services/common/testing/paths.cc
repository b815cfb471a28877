#include "services/common/testing/paths.h"

namespace tandem {
namespace {

std::string Within(std::string_view folder, std::string_view path) {
  std::string all(folder);
  if (!path.empty()) all.append("/").append(path);
  return all;
}

}  // namespace

std::string SourcePath(std::string_view path) { return Within(TANDEM_SOURCE_DIR, path); }

std::string BuildPath(std::string_view path) { return Within(TANDEM_BINARY_DIR, path); }

std::string TestDataPath(std::string_view path) { return Within(TANDEM_TEST_DATA_DIR, path); }

}  // namespace tandem

// Checks of flags' values, for CLI11: they run for the command line and for --config alike.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// A check that takes what `parse` takes, and says what its status says.
//   option->check(CheckedBy(ParseNpuPolicy));
template <typename Parse>
std::function<std::string(const std::string&)> CheckedBy(Parse parse) {
  return [parse](const std::string& text) {
    const auto result = parse(text);
    return std::string(StatusOf(result).message());
  };
}

// NOT_FOUND: `path` is no file that can be read; says why.
absl::Status CheckReadable(const std::string& path);

}  // namespace tandem

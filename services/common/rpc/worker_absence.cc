#include "services/common/rpc/worker_absence.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_format.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem {
namespace {

// A note longer than this is not one of ours.
constexpr size_t kMaxLine = 1024;

std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text.substr(0, kMaxLine / 2);
}

}  // namespace

std::optional<std::string> AbsenceNotePath(const std::string& target) {
  const std::optional<std::string> socket = UnixSocketPath(target);
  if (!socket.has_value()) return std::nullopt;
  return *socket + ".absent";
}

absl::Status WriteAbsence(const std::string& target, const WorkerAbsence& absence) {
  const std::optional<std::string> path = AbsenceNotePath(target);
  if (!path.has_value()) return absl::OkStatus();
  const std::string unfinished = *path + ".new";
  std::ofstream file(unfinished, std::ios::trunc);
  file << absl::StrFormat("kind=%s\nname=%s\ndevice=%s\nreason=%s\n", OneLine(absence.kind),
                          OneLine(absence.name), absence.device_present ? "present" : "none",
                          OneLine(absence.reason));
  file.close();
  if (file.fail() || std::rename(unfinished.c_str(), path->c_str()) != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("cannot write %s: %s", *path, std::strerror(errno)));
  }
  return absl::OkStatus();
}

void RemoveAbsence(const std::string& target) {
  if (const auto path = AbsenceNotePath(target)) std::remove(path->c_str());
}

std::optional<WorkerAbsence> ReadAbsence(const std::string& target) {
  const std::optional<std::string> path = AbsenceNotePath(target);
  if (!path.has_value()) return std::nullopt;
  std::ifstream file(*path);
  WorkerAbsence absence;
  std::string device;
  for (std::string line; std::getline(file, line) && line.size() <= kMaxLine;) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = line.substr(0, equals);
    const std::string value = line.substr(equals + 1);
    if (key == "kind") absence.kind = value;
    if (key == "name") absence.name = value;
    if (key == "device") device = value;
    if (key == "reason") absence.reason = value;
  }
  if (absence.kind.empty() || absence.name.empty() || device.empty()) return std::nullopt;
  absence.device_present = device != "none";
  return absence;
}

}  // namespace tandem

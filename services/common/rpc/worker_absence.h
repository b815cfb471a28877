// Absence notes: a worker that will not start leaves a note beside the socket that it would have
// had.
//
//   /run/tandem/npu.sock.absent     kind=npu
//                                   name=npu0
//                                   device=none
//                                   reason=this machine has no NPU
//
// A machine without an NPU is not broken.  Under --npu=auto and prefer the NPU worker leaves this note
// before it ends, and the gateway neither waits for that worker nor counts it as lost.  A worker
// removes the note when it starts, so a killed worker leaves no note.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace tandem {

struct WorkerAbsence {
  std::string kind;             // "npu"
  std::string name;             // "npu0"
  bool device_present = false;  // the device is there and cannot be used
  std::string reason;           // one line

  bool operator==(const WorkerAbsence&) const = default;
};

// The note's path; nullopt for a target without a socket file.
std::optional<std::string> AbsenceNotePath(const std::string& target);

// Replaces the note of `target`.  No effect, and OK, for a target without a socket file.
// FAILED_PRECONDITION names the path that cannot be written.
absl::Status WriteAbsence(const std::string& target, const WorkerAbsence& absence);

// Removes the note, if there is one.
void RemoveAbsence(const std::string& target);

// The note; nullopt if it does not exist or cannot be read.
std::optional<WorkerAbsence> ReadAbsence(const std::string& target);

}  // namespace tandem

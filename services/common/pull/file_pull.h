// Brings one file from the hub, whole and checked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "services/common/pull/hub.h"
#include "services/common/pull/part_file.h"
#include "services/common/pull/pull.h"

namespace tandem::pull {

// Single-thread.
class FilePull {
 public:
  using Progress = std::function<bool(const PullProgress&)>;

  // `sha256`: what the file should have, or empty.  Borrowed, and must outlive this: hub, options,
  // tell.
  FilePull(const Hub& hub, HubFile file, std::string sha256, const PullOptions& options,
           const Progress& tell);

  // Asks the hub for the file's size and checksum.  Errors as for Hub::Resolve; DATA_LOSS: the
  // host's checksum is another than `sha256`; CANCELLED.
  absl::Status Resolve();
  // Whether just this file is at `path`, where `bytes` lie.  `recorded`: its checksum; empty: the
  // file was put there by hand and is read for it.
  bool IsThere(const std::string& path, uint64_t bytes, const std::string& recorded);
  // Brings it to `path`.  Errors as for Pull.
  absl::Status Bring(const std::string& path);

  const HubFile& file() const { return file_; }
  const RemoteFile& remote() const { return remote_; }
  uint64_t received_bytes() const { return received_bytes_; }

 private:
  absl::Status Download(PartFile& part);
  absl::Status Verify(PartFile& part);

  const Hub& hub_;
  const HubFile file_;
  const std::string sha256_;
  const PullOptions& options_;
  const Progress& tell_;
  PullProgress state_;
  RemoteFile remote_;
  uint64_t received_bytes_ = 0;
};

}  // namespace tandem::pull

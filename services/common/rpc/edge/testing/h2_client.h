// A client that sends what no library would, for tests.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "services/common/base/unique_fd.h"

namespace tandem::testing {

// Single-thread.
class H2Client {
 public:
  // Connects to "unix:/path" or "127.0.0.1:port".
  explicit H2Client(const std::string& target);

  // Whether all went out; false once the other end has closed.
  bool Send(const std::string& bytes);
  // Sends no more.
  void HalfClose();
  // Reads until something of `text` has come; false if the other end closed, or time ran out.
  bool Await(const std::string& text, absl::Duration patience = absl::Seconds(20));
  // Reads until the other end closes; false if it does not.
  bool AwaitEnd(absl::Duration patience = absl::Seconds(20));
  // All that was read.
  const std::string& read() const { return read_; }
  int fd() const { return fd_.get(); }

 private:
  // False when nothing comes any more, or not in time.
  bool ReadMore(absl::Time deadline);

  UniqueFd fd_;
  std::string read_;
  bool ended_ = false;
};

// A header block of a gRPC call, without a table.
std::string CallHeaders(const std::string& path);
// A message, not compressed.
std::string GrpcMessage(const std::string& payload);

}  // namespace tandem::testing

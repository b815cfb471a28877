// A process of tandem-image-decoder: it decodes one picture.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/unique_fd.h"

namespace tandem::gateway {

struct DecoderLimits {
  uint64_t max_pixels = uint64_t{32} << 20;
  uint64_t max_memory_bytes = uint64_t{640} << 20;  // of the process, pixels included
  absl::Duration timeout = absl::Seconds(10);       // of processor time; of the clock twice as much
};

// Upright RGB, a byte a channel, rows without padding.
struct DecodedPixels {
  uint32_t width = 0;
  uint32_t height = 0;
  Mapping pixels;
};

// Move-only; a process that still runs is killed on destruction.  Single-thread.
class DecoderProcess {
 public:
  // Starts `program`, with no environment and no open file but its socket and standard error.
  // NOT_FOUND and the like when it cannot be started.
  static absl::StatusOr<DecoderProcess> Start(const std::string& program,
                                              const DecoderLimits& limits);

  DecoderProcess(DecoderProcess&& other) noexcept;
  DecoderProcess& operator=(DecoderProcess&& other) noexcept;
  ~DecoderProcess();

  // Decodes `file` and ends the process, whatever comes of it.  Blocks, for limits.timeout at most.
  // INVALID_ARGUMENT: the file is refused, or decoding it took too long or killed the process.
  // UNAVAILABLE: something else killed the process; another one may decode the file.
  // INTERNAL: it does not run here, or its reply is no reply; RESOURCE_EXHAUSTED: no memory.
  absl::StatusOr<DecodedPixels> Decode(std::string_view file, const DecoderLimits& limits);

  pid_t pid() const { return pid_; }

 private:
  DecoderProcess(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  // Kills it if it runs; its wait status.
  int End();
  absl::Status WhyItEnded(const DecoderLimits& limits);

  pid_t pid_ = -1;
  UniqueFd socket_;
};

}  // namespace tandem::gateway

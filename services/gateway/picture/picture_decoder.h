// Decodes pictures of strangers, a process for each.
//
// A process decodes one picture and ends, so that a file which takes its decoder over sees no other
// picture.  The next process waits already: it was started when the last picture was given back.
//
//   Decode -> slot (in turn) -> waiting process -> pixels -> DecodedPicture, which holds the slot
//
// There are `max_decoders` slots: so many pictures are decoded, or decoded and not yet given back,
// at a time.  That bounds memory.  Senders take turns for slots: the pictures of one delay another
// sender's by the time of one picture a slot.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/base/turn_queue.h"
#include "services/gateway/picture/decoder_process.h"

namespace tandem::gateway {

struct PictureDecoderOptions {
  std::string program;  // path of tandem-image-decoder
  uint32_t max_decoders = 2;
  uint32_t max_waiting = 64;                    // pictures that wait for a slot
  uint32_t max_waiting_per_sender = 16;         // of one sender
  absl::Duration max_wait = absl::Seconds(30);  // for a slot
  uint64_t max_file_bytes = uint64_t{20} << 20;
  DecoderLimits limits;
};

class PictureDecoder;

// A decoded picture.  Move-only; destroy it as soon as it is prepared: others wait for its slot.
class DecodedPicture {
 public:
  DecodedPicture(DecodedPicture&&) noexcept;
  DecodedPicture& operator=(DecodedPicture&&) = delete;
  ~DecodedPicture();

  uint32_t width() const { return decoded_.width; }
  uint32_t height() const { return decoded_.height; }
  // Upright RGB: [height, width, 3].
  std::span<const uint8_t> pixels() const;

 private:
  friend class PictureDecoder;
  DecodedPicture(PictureDecoder* decoder, uint32_t slot, DecodedPixels decoded)
      : decoder_(decoder), slot_(slot), decoded_(std::move(decoded)) {}

  PictureDecoder* decoder_;  // null after a move
  uint32_t slot_;
  DecodedPixels decoded_;
};

// Thread-safe.  Must outlive its pictures.
class PictureDecoder {
 public:
  // Starts a process for each slot.  NOT_FOUND and the like when they cannot be started.
  static absl::StatusOr<std::unique_ptr<PictureDecoder>> Create(PictureDecoderOptions options);
  ~PictureDecoder();

  // Waits for a slot in turn with other senders, then decodes `file`.  Blocks, for max_wait and
  // limits.timeout at most.  INVALID_ARGUMENT with a sentence for the client when the picture is
  // refused; RESOURCE_EXHAUSTED when too many wait or it waited too long; UNAVAILABLE when two
  // decoders in a row were killed; INTERNAL when the decoder does not run.
  absl::StatusOr<DecodedPicture> Decode(const std::string& sender, std::string_view file);

  // Processes that wait for a picture, for tests.
  std::vector<pid_t> WaitingProcesses();

 private:
  friend class DecodedPicture;
  struct Waiter;

  explicit PictureDecoder(PictureDecoderOptions options);
  absl::StatusOr<uint32_t> TakeSlot(const std::string& sender);
  absl::StatusOr<DecodedPixels> DecodeIn(uint32_t slot, std::string_view file);
  // Starts the slot's next process, then gives the slot to the next sender.
  void GiveBack(uint32_t slot);

  const PictureDecoderOptions options_;
  Mutex mutex_;
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mutex_);
  TurnQueue<std::shared_ptr<Waiter>> waiting_ ABSL_GUARDED_BY(mutex_);
  uint32_t num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint32_t> num_waiting_of_ ABSL_GUARDED_BY(mutex_);  // by sender
  // [max_decoders]; touched by a slot's holder, and under the mutex while nobody holds it.
  std::vector<std::optional<DecoderProcess>> processes_;
};

}  // namespace tandem::gateway

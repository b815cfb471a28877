#include "services/gateway/picture/picture_decoder.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/common/picture/decoder_wire.h"

namespace tandem::gateway {

// A sender's place in the queue.  Shared by the sender, who may leave, and the queue.
struct PictureDecoder::Waiter {
  CondVar changed;
  std::optional<uint32_t> slot;
  bool gone = false;
};

DecodedPicture::DecodedPicture(DecodedPicture&& other) noexcept
    : decoder_(std::exchange(other.decoder_, nullptr)),
      slot_(other.slot_),
      decoded_(std::move(other.decoded_)) {}

DecodedPicture::~DecodedPicture() {
  if (decoder_ == nullptr) return;
  decoded_.pixels = Mapping();
  decoder_->GiveBack(slot_);
}

std::span<const uint8_t> DecodedPicture::pixels() const {
  return {reinterpret_cast<const uint8_t*>(decoded_.pixels.data()), decoded_.pixels.size()};
}

absl::StatusOr<std::unique_ptr<PictureDecoder>> PictureDecoder::Create(
    PictureDecoderOptions options) {
  if (options.max_decoders == 0 || options.max_decoders > 64) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d decoders of pictures; 1 to 64 are possible", options.max_decoders));
  }
  std::unique_ptr<PictureDecoder> decoder(new PictureDecoder(std::move(options)));
  for (std::optional<DecoderProcess>& process : decoder->processes_) {
    TANDEM_ASSIGN_OR_RETURN(
        process, DecoderProcess::Start(decoder->options_.program, decoder->options_.limits));
  }
  return decoder;
}

PictureDecoder::PictureDecoder(PictureDecoderOptions options)
    : options_(std::move(options)), processes_(options_.max_decoders) {
  for (uint32_t slot = options_.max_decoders; slot-- > 0;) free_.push_back(slot);
}

PictureDecoder::~PictureDecoder() {
  MutexLock lock(mutex_);
  TANDEM_CHECK(free_.size() == processes_.size());
}

absl::StatusOr<DecodedPicture> PictureDecoder::Decode(const std::string& sender,
                                                      std::string_view file) {
  if (file.size() > options_.max_file_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the picture's file has %d bytes; at most %d are accepted", file.size(),
                        options_.max_file_bytes));
  }
  TANDEM_ASSIGN_OR_RETURN(const uint32_t slot, TakeSlot(sender));
  absl::StatusOr<DecodedPixels> decoded = DecodeIn(slot, file);
  if (!decoded.ok()) {
    GiveBack(slot);
    return decoded.status();
  }
  return DecodedPicture(this, slot, *std::move(decoded));
}

absl::StatusOr<uint32_t> PictureDecoder::TakeSlot(const std::string& sender) {
  const absl::Time deadline = absl::Now() + options_.max_wait;
  MutexLock lock(mutex_);
  if (!free_.empty()) {
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (num_waiting_ >= options_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d pictures wait to be decoded already", num_waiting_));
  }
  const auto own = num_waiting_of_.try_emplace(sender, 0).first;
  if (own->second >= options_.max_waiting_per_sender) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d pictures of yours wait to be decoded already", own->second));
  }
  auto waiter = std::make_shared<Waiter>();
  waiting_.Push(sender, waiter);
  ++num_waiting_;
  ++own->second;
  while (!waiter->slot.has_value() && waiter->changed.WaitUntil(mutex_, deadline)) {
  }
  --num_waiting_;
  if (--own->second == 0) num_waiting_of_.erase(own);
  if (waiter->slot.has_value()) return *waiter->slot;
  waiter->gone = true;
  return absl::ResourceExhaustedError(
      absl::StrFormat("the picture waited %s to be decoded: too many are sent",
                      absl::FormatDuration(options_.max_wait)));
}

absl::StatusOr<DecodedPixels> PictureDecoder::DecodeIn(uint32_t slot, std::string_view file) {
  std::optional<DecoderProcess>& process = processes_[slot];
  // A process that was killed while it waited, or with this picture, is replaced once.
  for (int attempt = 0;; ++attempt) {
    if (!process.has_value()) {
      TANDEM_ASSIGN_OR_RETURN(process, DecoderProcess::Start(options_.program, options_.limits));
    }
    absl::StatusOr<DecodedPixels> decoded = process->Decode(file, options_.limits);
    process.reset();
    if (attempt > 0 || !absl::IsUnavailable(decoded.status())) return decoded;
  }
}

void PictureDecoder::GiveBack(uint32_t slot) {
  absl::StatusOr<DecoderProcess> next = DecoderProcess::Start(options_.program, options_.limits);
  if (next.ok()) processes_[slot] = *std::move(next);  // else the next picture tries and reports
  MutexLock lock(mutex_);
  while (!waiting_.empty()) {
    const std::shared_ptr<Waiter> waiter = waiting_.Pop();
    if (waiter->gone) continue;
    waiter->slot = slot;
    waiter->changed.SignalOne();
    return;
  }
  free_.push_back(slot);
}

std::vector<pid_t> PictureDecoder::WaitingProcesses() {
  MutexLock lock(mutex_);
  std::vector<pid_t> pids;
  for (const uint32_t slot : free_) {
    if (processes_[slot].has_value()) pids.push_back(processes_[slot]->pid());
  }
  return pids;
}

}  // namespace tandem::gateway

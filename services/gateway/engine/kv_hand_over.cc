#include "services/gateway/engine/kv_hand_over.h"

namespace tandem::gateway {

std::vector<std::byte> KvBuffers::Get() {
  MutexLock lock(mutex_);
  if (free_.empty()) return {};
  std::vector<std::byte> buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void KvBuffers::Put(std::vector<std::byte> buffer) {
  MutexLock lock(mutex_);
  if (free_.size() < kMostFree) free_.push_back(std::move(buffer));
}

std::optional<uint32_t> KvHandOver::accepted() const {
  MutexLock lock(mutex_);
  return accepted_;
}

size_t KvHandOver::num_waiting() const {
  MutexLock lock(mutex_);
  return pieces_.size();
}

void KvHandOver::Put(KvPiece piece) {
  MutexLock lock(mutex_);
  if (end_ != End::kOpen) return;
  pieces_.push_back(std::move(piece));
  if (wake_) wake_();
}

void KvHandOver::Finish() {
  MutexLock lock(mutex_);
  all_put_ = true;
  if (wake_) wake_();
}

bool KvHandOver::arrived() const {
  MutexLock lock(mutex_);
  return arrived_;
}

void KvHandOver::Accept(uint32_t num_blocks, std::function<void()> wake) {
  MutexLock lock(mutex_);
  accepted_ = num_blocks;
  if (end_ == End::kOpen) wake_ = std::move(wake);
}

std::optional<KvPiece> KvHandOver::Take() {
  MutexLock lock(mutex_);
  if (pieces_.empty()) return std::nullopt;
  KvPiece piece = std::move(pieces_.front());
  pieces_.pop_front();
  return piece;
}

void KvHandOver::GiveBack(KvPiece piece) {
  if (buffers_ != nullptr) buffers_->Put(std::move(piece.bytes));
}

bool KvHandOver::finished() const {
  MutexLock lock(mutex_);
  return all_put_ && pieces_.empty();
}

void KvHandOver::Arrive() {
  MutexLock lock(mutex_);
  arrived_ = true;
}

void KvHandOver::SetReceiver(uint32_t replica) {
  MutexLock lock(mutex_);
  receiver_ = replica;
}

uint32_t KvHandOver::receiver() const {
  MutexLock lock(mutex_);
  return receiver_;
}

void KvHandOver::Abandon(End why) {
  MutexLock lock(mutex_);
  if (end_ != End::kOpen) return;
  end_ = why;
  pieces_.clear();
  // The receiver lets go of what it holds.
  if (const std::function<void()> wake = std::exchange(wake_, nullptr)) wake();
}

KvHandOver::End KvHandOver::end() const {
  MutexLock lock(mutex_);
  return end_;
}

}  // namespace tandem::gateway

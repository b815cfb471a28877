#include "services/gateway/engine/kv_receiver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/tensor/kv_format.h"
#include "services/gateway/engine/kv_parts.h"
#include "services/gateway/executor/placement_moved.h"

namespace tandem::gateway {
namespace {

// How long blocks are waited for before a hand-over is given up.
constexpr absl::Duration kLongestWait = absl::Seconds(1);

// Of `num_blocks` blocks from `first` on, those with a window block.
uint32_t NumWindow(uint32_t first, uint32_t num_blocks, uint32_t first_window) {
  const uint32_t end = first + num_blocks;
  return end - std::min(end, std::max(first, first_window));
}

}  // namespace

KvReceiver::KvReceiver(Executor& executor, Scheduler& scheduler, uint32_t places,
                       std::function<void()> wake)
    : executor_(executor), scheduler_(scheduler), wake_(std::move(wake)), places_(places) {}

bool KvReceiver::Expect(std::shared_ptr<KvHandOver> hand_over) {
  bool expected = false;
  {
    MutexLock lock(mutex_);
    if (stopped_) return false;
    expected = num_incoming_ + expected_.size() < places_;
    if (expected) expected_.push_back(std::move(hand_over));
  }
  // Also where there is no place: there may be one since an Update that is long ago.
  wake_();
  return expected;
}

uint32_t KvReceiver::num_pending() const {
  MutexLock lock(mutex_);
  return num_incoming_ + static_cast<uint32_t>(expected_.size());
}

bool KvReceiver::Update(uint32_t places, absl::Time now) {
  next_ = nullptr;
  size_t num_dropped = std::erase_if(incoming_, [this](Incoming& incoming) {
    // The scheduler may have needed its blocks.
    const KvHandOver& hand_over = *incoming.hand_over;
    const bool over = hand_over.end() != KvHandOver::End::kOpen ||
                      !scheduler_.imports().contains(hand_over.prefix().request);
    if (over) Drop(incoming);
    return over;
  });
  std::vector<std::shared_ptr<KvHandOver>> expected;
  {
    MutexLock lock(mutex_);
    expected.swap(expected_);
    places_ = places;
    num_incoming_ = static_cast<uint32_t>(incoming_.size() + expected.size());
  }
  for (auto& hand_over : expected) {
    if (Accept(*hand_over)) incoming_.push_back({.hand_over = std::move(hand_over)});
  }
  for (auto incoming = incoming_.begin(); incoming != incoming_.end();) {
    if (Prepare(*incoming, now)) {
      ++incoming;
    } else {
      Drop(*incoming);
      incoming = incoming_.erase(incoming);
      ++num_dropped;
    }
  }
  return num_dropped > 0;
}

bool KvReceiver::Accept(KvHandOver& hand_over) {
  if (hand_over.end() != KvHandOver::End::kOpen) return false;
  const KvPrefix& prefix = hand_over.prefix();
  KvImports& imports = scheduler_.imports();
  if (prefix.block_tokens != executor_.limits().block_tokens || executor_.KvArea().empty() ||
      imports.contains(prefix.request) ||
      !imports.CouldHold(prefix.num_blocks(), prefix.num_blocks() - prefix.first_window)) {
    hand_over.Abandon(KvHandOver::End::kRefused);
    return false;
  }
  const uint32_t there =
      scheduler_.BeginImport(prefix.request, prefix.scope, prefix.tokens, prefix.first_window);
  hand_over.Accept(there, wake_);
  return true;
}

bool KvReceiver::Prepare(Incoming& incoming, absl::Time now) {
  KvHandOver& hand_over = *incoming.hand_over;
  if (!incoming.piece.has_value() && hand_over.finished()) hand_over.Arrive();
  // One after another, because a piece that was taken is held in memory.
  if (next_ != nullptr) return true;
  if (!incoming.piece.has_value()) {
    incoming.piece = hand_over.Take();
    incoming.num_written = incoming.num_blocks = 0;
    incoming.piece_taken = now;
  }
  if (!incoming.piece.has_value()) return true;
  const KvPiece& piece = *incoming.piece;
  if (incoming.num_blocks == incoming.num_written) {
    // As many as the area takes.
    const KvPrefix& prefix = hand_over.prefix();
    const KvCopyLayout layout(executor_.config(), executor_.limits());
    const uint32_t first = piece.first_block + incoming.num_written;
    uint32_t count = 0;
    while (first + count < piece.end_block &&
           (count + 1) * layout.BlockBytes(kGlobalGroup) +
                   NumWindow(first, count + 1, prefix.first_window) *
                       layout.BlockBytes(kWindowGroup) <=
               executor_.KvArea().size()) {
      ++count;
    }
    auto blocks = scheduler_.imports().Extend(prefix.request, first + count);
    if (!blocks.has_value()) return now - incoming.piece_taken < kLongestWait;
    incoming.blocks = *std::move(blocks);
    incoming.num_blocks += count;
  }
  next_ = &incoming;
  return true;
}

void KvReceiver::FillArea(const Incoming& incoming, uint32_t count) {
  const KvPrefix& prefix = incoming.hand_over->prefix();
  const KvPiece& piece = *incoming.piece;
  StepLimits limits = executor_.limits();
  const KvCopyLayout here(executor_.config(), limits);
  const DType kv_dtype = limits.kv_dtype;
  limits.kv_dtype = prefix.kv_dtype;
  const KvCopyLayout there(executor_.config(), limits);
  const uint32_t head_dim = executor_.config().head_dim;
  const uint64_t from_page = KvPageBytes(prefix.kv_dtype, limits.block_tokens, head_dim);
  const uint64_t to_page = KvPageBytes(kv_dtype, limits.block_tokens, head_dim);
  const auto copy = [&](std::span<const std::byte> from, std::span<std::byte> to) {
    ForParts(from.size() / from_page, from_page, KvThreads(), [&](size_t begin, size_t end) {
      if (prefix.kv_dtype == kv_dtype) {
        std::memcpy(to.data() + begin * to_page, from.data() + begin * from_page,
                    (end - begin) * from_page);
        return;
      }
      std::vector<float> values(size_t{limits.block_tokens} * head_dim);
      for (size_t page = begin; page < end; ++page) {
        DecodeKvPage(prefix.kv_dtype, from.subspan(page * from_page, from_page), values);
        EncodeKvPage(kv_dtype, values, to.subspan(page * to_page, to_page));
      }
    });
  };
  const uint32_t first = piece.first_block + incoming.num_written;
  const uint32_t num_blocks = piece.end_block - piece.first_block;
  const uint32_t window_before =
      NumWindow(piece.first_block, incoming.num_written, prefix.first_window);
  const uint32_t num_window = NumWindow(first, count, prefix.first_window);
  const uint64_t window_at =
      num_blocks * there.BlockBytes(kGlobalGroup) + window_before * there.BlockBytes(kWindowGroup);
  const std::span<const std::byte> bytes = piece.bytes;
  const std::span<std::byte> area = executor_.KvArea();
  copy(bytes.subspan(incoming.num_written * there.BlockBytes(kGlobalGroup),
                     count * there.BlockBytes(kGlobalGroup)),
       area);
  copy(bytes.subspan(window_at, num_window * there.BlockBytes(kWindowGroup)),
       area.subspan(count * here.BlockBytes(kGlobalGroup)));
}

absl::Status KvReceiver::CopyOnce() {
  TANDEM_CHECK(next_ != nullptr);
  const absl::Time begin = absl::Now();
  Incoming& incoming = *std::exchange(next_, nullptr);
  FillArea(incoming, incoming.num_blocks - incoming.num_written);
  const absl::Time filled = absl::Now();
  const KvCopy copy{
      .write = true,
      .blocks = {incoming.blocks.ids[kGlobalGroup], incoming.blocks.ids[kWindowGroup]}};
  absl::Status copied = executor_.CopyKv(copy);
  if (!copied.ok()) {
    LogWarning("KV could not be taken over", {{"status", copied.ToString()}});
    incoming.hand_over->Abandon(IsPlacementMoved(copied) ? KvHandOver::End::kGivenUp
                                                         : KvHandOver::End::kRefused);
    return absl::IsUnavailable(copied) ? copied : absl::OkStatus();
  }
  const KvCopyLayout layout(executor_.config(), executor_.limits());
  bytes_.fetch_add(layout.Bytes(copy), std::memory_order_relaxed);
  scheduler_.imports().Publish(incoming.hand_over->prefix().request);
  incoming.num_written = incoming.num_blocks;
  const KvPiece& piece = *incoming.piece;
  incoming.filling += filled - begin;
  incoming.calling += absl::Now() - filled;
  if (incoming.num_written == piece.end_block - piece.first_block) {
    incoming.hand_over->GiveBack(*std::exchange(incoming.piece, std::nullopt));
  }
  return absl::OkStatus();
}

void KvReceiver::Adopted(uint64_t request) {
  next_ = nullptr;
  for (const Incoming& incoming : incoming_) {
    if (incoming.hand_over->prefix().request != request) continue;
    LogDebug("KV taken over", {{"request", request},
                               {"filling", absl::FormatDuration(incoming.filling)},
                               {"calling", absl::FormatDuration(incoming.calling)}});
  }
  std::erase_if(incoming_, [request](const Incoming& incoming) {
    return incoming.hand_over->prefix().request == request;
  });
}

void KvReceiver::Drop(Incoming& incoming) {
  KvHandOver& hand_over = *incoming.hand_over;
  hand_over.Abandon();
  scheduler_.imports().End(hand_over.prefix().request);
  if (hand_over.end() == KvHandOver::End::kBadKv) scheduler_.ForgetPrefixes();
}

void KvReceiver::AbandonAll() {
  next_ = nullptr;
  std::vector<std::shared_ptr<KvHandOver>> expected;
  {
    MutexLock lock(mutex_);
    expected.swap(expected_);
    num_incoming_ = 0;
  }
  for (const auto& hand_over : expected) hand_over->Abandon();
  for (Incoming& incoming : incoming_) Drop(incoming);
  incoming_.clear();
}

void KvReceiver::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  AbandonAll();
}

}  // namespace tandem::gateway

#include "services/gateway/engine/kv_sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/gateway/engine/kv_parts.h"
#include "services/gateway/executor/placement_moved.h"

namespace tandem::gateway {
namespace {

// Between two offers of the same KV.
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

}  // namespace

bool KvSender::ShouldOffer(uint64_t request, absl::Time now) const {
  const auto found = outgoing_.find(request);
  return found == outgoing_.end() ||
         (found->second.hand_over == nullptr && now >= found->second.again);
}

void KvSender::OfferKv(uint64_t request, const std::string& scope, uint32_t prompt_tokens,
                       absl::Time now, const Offer& offer) {
  const StepLimits& limits = executor_.limits();
  const PublishedPrefix published = scheduler_.Published(request);
  if (published.forgotten) return;
  // The last token known is computed where the sequence goes on.
  const uint32_t num_tokens =
      std::max(prompt_tokens, static_cast<uint32_t>(published.tokens.size()) - 1);
  const uint32_t num_blocks = num_tokens / limits.block_tokens;
  const auto covered = published.tokens.first(size_t{num_blocks} * limits.block_tokens);
  const auto num_covered = static_cast<uint32_t>(covered.size());
  const uint32_t first_window =
      FirstWindowBlock(num_covered, limits.sliding_window, limits.block_tokens);
  // In the middle of a block the window may have passed the first of them: again at the next block.
  const std::span<const uint32_t> window = published.blocks[kWindowGroup];
  if (first_window < window.size() && window[first_window] == kNoBlock) return;
  Outgoing& outgoing = outgoing_[request];
  auto hand_over = std::make_shared<KvHandOver>(KvPrefix{.request = request,
                                                         .scope = scope,
                                                         .tokens = {covered.begin(), covered.end()},
                                                         .block_tokens = limits.block_tokens,
                                                         .first_window = first_window,
                                                         .kv_dtype = limits.kv_dtype},
                                                buffers_, outgoing.refused_by);
  outgoing = {.hand_over = std::move(hand_over),
              .pause = outgoing.pause,
              .refused_by = std::move(outgoing.refused_by),
              .offered = now};
  if (!offer(outgoing.hand_over)) {
    return Abandon(request, outgoing, now, KvHandOver::End::kGivenUp);
  }
  scheduler_.KeepWindow(request, num_covered);
}

void KvSender::Update(absl::Time now) {
  for (auto& [request, outgoing] : outgoing_) {
    if (outgoing.hand_over == nullptr) continue;
    KvHandOver& hand_over = *outgoing.hand_over;
    if (const KvHandOver::End end = hand_over.end(); end != KvHandOver::End::kOpen) {
      Abandon(request, outgoing, now, end);
      continue;
    }
    const bool all_read = outgoing.next_block == hand_over.prefix().num_blocks();
    if (!all_read && scheduler_.Published(request).forgotten) {
      // What was sent of it may have come from the KV that was forgotten here.
      Abandon(request, outgoing, now, KvHandOver::End::kBadKv);
      continue;
    }
    const std::optional<uint32_t> accepted = hand_over.accepted();
    if (outgoing.accepted || !accepted.has_value()) continue;
    outgoing.accepted = true;
    outgoing.next_block = *accepted;
    if (*accepted == hand_over.prefix().num_blocks()) hand_over.Finish();
  }
}

KvSender::Outgoing* KvSender::FindDue() {
  size_t num_waiting = 0;
  for (const auto& [request, outgoing] : outgoing_) {
    if (outgoing.hand_over != nullptr) num_waiting += outgoing.hand_over->num_waiting();
  }
  if (num_waiting >= kMostWaiting) return nullptr;
  for (auto& [request, outgoing] : outgoing_) {
    if (outgoing.hand_over == nullptr || !outgoing.accepted ||
        outgoing.next_block == outgoing.hand_over->prefix().num_blocks()) {
      continue;
    }
    const auto there = scheduler_.Published(request).blocks[kGlobalGroup].size();
    if (outgoing.next_block < there) return &outgoing;
  }
  return nullptr;
}

absl::Status KvSender::CopyOnce() {
  const absl::Time begin = absl::Now();
  Outgoing* const due = FindDue();
  TANDEM_CHECK(due != nullptr);
  const KvPrefix& prefix = due->hand_over->prefix();
  const PublishedPrefix published = scheduler_.Published(prefix.request);
  const KvCopyLayout layout(executor_.config(), executor_.limits());
  const std::span<std::byte> area = executor_.KvArea();
  const auto end =
      std::min(prefix.num_blocks(), static_cast<uint32_t>(published.blocks[kGlobalGroup].size()));
  std::vector<uint32_t> blocks[kNumKvGroups];
  uint64_t bytes = 0;
  bool gone = false;
  uint32_t next = due->next_block;
  for (; next < end; ++next) {
    const bool window = next >= prefix.first_window;
    bytes += layout.BlockBytes(kGlobalGroup) + (window ? layout.BlockBytes(kWindowGroup) : 0);
    if (bytes > area.size()) break;
    blocks[kGlobalGroup].push_back(published.blocks[kGlobalGroup][next]);
    if (window) blocks[kWindowGroup].push_back(published.blocks[kWindowGroup][next]);
    gone |= window && blocks[kWindowGroup].back() == kNoBlock;
  }
  const KvCopy copy{.blocks = {blocks[kGlobalGroup], blocks[kWindowGroup]}};
  // A sequence that was preempted may have come back behind its window.
  absl::Status copied =
      gone ? absl::NotFoundError("a block of the window is gone") : executor_.CopyKv(copy);
  if (!copied.ok()) {
    LogDebug("KV is not handed over", {{"status", copied.ToString()}});
    Abandon(prefix.request, *due, absl::Now(), KvHandOver::End::kGivenUp);
    if (!absl::IsUnavailable(copied)) return absl::OkStatus();
    if (!IsPlacementMoved(copied)) due->again = absl::InfiniteFuture();
    return copied;
  }
  due->calling += absl::Now() - begin;
  const auto read = area.first(layout.Bytes(copy));
  bytes_.fetch_add(read.size(), std::memory_order_relaxed);
  KvPiece piece{.first_block = due->next_block, .end_block = next, .bytes = buffers_->Get()};
  piece.bytes.resize(read.size());
  ForParts(read.size(), 1, KvThreads(), [&](size_t from, size_t to) {
    std::memcpy(piece.bytes.data() + from, read.data() + from, to - from);
  });
  due->hand_over->Put(std::move(piece));
  due->next_block = next;
  due->bytes += read.size();
  due->copying += absl::Now() - begin;
  if (next == prefix.num_blocks()) due->hand_over->Finish();
  return absl::OkStatus();
}

std::vector<uint64_t> KvSender::Arrived() const {
  std::vector<uint64_t> arrived;
  for (const auto& [request, outgoing] : outgoing_) {
    if (outgoing.hand_over != nullptr && outgoing.hand_over->arrived()) arrived.push_back(request);
  }
  return arrived;
}

std::shared_ptr<KvHandOver> KvSender::Find(uint64_t request) const {
  const auto found = outgoing_.find(request);
  return found == outgoing_.end() ? nullptr : found->second.hand_over;
}

void KvSender::Moved(uint64_t request) {
  const auto found = outgoing_.find(request);
  const Outgoing& outgoing = found->second;
  LogDebug("KV handed over",
           {{"request", request},
            {"receiver", outgoing.hand_over->receiver()},
            {"tokens", outgoing.hand_over->prefix().tokens.size()},
            {"bytes", outgoing.bytes},
            {"reading", absl::FormatDuration(outgoing.copying)},
            {"calling", absl::FormatDuration(outgoing.calling)},
            {"since_offered", absl::FormatDuration(absl::Now() - outgoing.offered)}});
  outgoing_.erase(found);
}

void KvSender::Forget(uint64_t request, KvHandOver::End why) {
  const auto found = outgoing_.find(request);
  if (found == outgoing_.end()) return;
  if (found->second.hand_over != nullptr) found->second.hand_over->Abandon(why);
  outgoing_.erase(found);
}

void KvSender::Abandon(uint64_t request, absl::Time now) {
  const auto found = outgoing_.find(request);
  if (found != outgoing_.end() && found->second.hand_over != nullptr) {
    Abandon(request, found->second, now, KvHandOver::End::kGivenUp);
  }
}

void KvSender::Abandon(uint64_t request, Outgoing& outgoing, absl::Time now, KvHandOver::End why) {
  outgoing.hand_over->Abandon(why);
  if (why == KvHandOver::End::kRefused) {
    outgoing.refused_by.push_back(outgoing.hand_over->receiver());
    outgoing = {.pause = outgoing.pause, .refused_by = std::move(outgoing.refused_by)};
  } else {
    const absl::Duration pause = std::clamp(2 * outgoing.pause, kFirstPause, kLongestPause);
    outgoing = {.again = now + pause, .pause = pause, .refused_by = std::move(outgoing.refused_by)};
  }
  scheduler_.KeepWindow(request, Sequence::kNoPosition);
  scheduler_.AwaitTake(request, false);
}

void KvSender::AbandonAll(absl::Time now) {
  for (auto& [request, outgoing] : outgoing_) {
    if (outgoing.hand_over != nullptr) {
      Abandon(request, outgoing, now, KvHandOver::End::kGivenUp);
    }
  }
}

}  // namespace tandem::gateway

#include "services/gateway/engine/kv_sender.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kOfferPause = absl::Milliseconds(50);

}  // namespace

void KvSender::OfferOnce(uint64_t request, const std::string& scope, uint32_t prompt_tokens,
                         absl::Time now, const Offer& offer) {
  const auto [found, added] = outgoing_.try_emplace(request);
  Outgoing& outgoing = found->second;
  if (!added && (outgoing.hand_over != nullptr || now < outgoing.again)) return;
  const StepLimits& limits = executor_.limits();
  const PublishedPrefix published = scheduler_.Published(request);
  // The last token known is computed where the sequence goes on.
  const uint32_t num_tokens =
      std::max(prompt_tokens, static_cast<uint32_t>(published.tokens.size()) - 1);
  const uint32_t num_blocks = num_tokens / limits.block_tokens;
  const auto covered = published.tokens.first(size_t{num_blocks} * limits.block_tokens);
  const auto num_covered = static_cast<uint32_t>(covered.size());
  const uint32_t first_window =
      FirstWindowBlock(num_covered, limits.sliding_window, limits.block_tokens);
  // An answer has them where a block begins; further on the window has passed the first of them.
  const std::span<const uint32_t> window = published.blocks[kWindowGroup];
  if (first_window < window.size() && window[first_window] == kNoBlock) return;
  auto hand_over = std::make_shared<KvHandOver>(KvPrefix{.request = request,
                                                         .scope = scope,
                                                         .tokens = {covered.begin(), covered.end()},
                                                         .block_tokens = limits.block_tokens,
                                                         .first_window = first_window,
                                                         .kv_dtype = limits.kv_dtype});
  outgoing = {.offered = now, .again = now + kOfferPause};
  if (!offer(hand_over)) return;
  outgoing.hand_over = std::move(hand_over);
  scheduler_.KeepWindow(request, num_covered);
}

void KvSender::Turn(absl::Time now) {
  for (auto& [request, outgoing] : outgoing_) {
    if (outgoing.hand_over == nullptr) continue;
    if (outgoing.hand_over->abandoned()) {
      GiveUp(request, outgoing, now);
      continue;
    }
    const std::optional<uint32_t> accepted = outgoing.hand_over->accepted();
    if (outgoing.begun || !accepted.has_value()) continue;
    Begin(outgoing, *accepted);
  }
}

void KvSender::Begin(Outgoing& outgoing, uint32_t num_blocks) {
  outgoing.begun = true;
  outgoing.next_block = num_blocks;
  if (num_blocks == outgoing.hand_over->prefix().num_blocks()) outgoing.hand_over->Finish();
}

KvSender::Outgoing* KvSender::FindDue() {
  for (auto& [request, outgoing] : outgoing_) {
    if (outgoing.hand_over == nullptr || !outgoing.begun ||
        outgoing.next_block == outgoing.hand_over->prefix().num_blocks()) {
      continue;
    }
    const auto there = scheduler_.Published(request).blocks[kGlobalGroup].size();
    if (outgoing.next_block < there && outgoing.hand_over->HasRoom()) return &outgoing;
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
  if (absl::IsUnavailable(copied)) return copied;
  if (!copied.ok() || next == due->next_block) {
    LogDebug("KV is not handed over", {{"status", copied.ToString()}});
    GiveUp(prefix.request, *due, absl::Now());
    return absl::OkStatus();
  }
  const auto read = area.first(layout.Bytes(copy));
  bytes_.fetch_add(read.size(), std::memory_order_relaxed);
  std::vector<std::byte> buffer = due->hand_over->TakeBuffer();
  buffer.assign(read.begin(), read.end());
  due->hand_over->Put(
      {.first_block = due->next_block, .end_block = next, .bytes = std::move(buffer)});
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

std::shared_ptr<KvHandOver> KvSender::TakeFor(uint64_t request) {
  const auto found = outgoing_.find(request);
  if (found == outgoing_.end()) return nullptr;
  Outgoing& outgoing = found->second;
  std::shared_ptr<KvHandOver> hand_over = std::move(outgoing.hand_over);
  if (hand_over != nullptr && hand_over->arrived()) {
    LogDebug("KV handed over",
             {{"request", request},
              {"receiver", hand_over->receiver()},
              {"tokens", hand_over->prefix().tokens.size()},
              {"bytes", outgoing.bytes},
              {"reading", absl::FormatDuration(outgoing.copying)},
              {"since_offered", absl::FormatDuration(absl::Now() - outgoing.offered)}});
  }
  outgoing_.erase(found);
  return hand_over;
}

void KvSender::GiveUp(uint64_t request, Outgoing& outgoing, absl::Time now) {
  outgoing.hand_over->Abandon();
  outgoing = {.again = now + kOfferPause};
  scheduler_.KeepWindow(request, Sequence::kNoPosition);
  scheduler_.AwaitTake(request, false);
}

void KvSender::Abandon(uint64_t request) {
  if (const std::shared_ptr<KvHandOver> hand_over = TakeFor(request)) hand_over->Abandon();
}

void KvSender::AbandonAll() {
  for (auto& [request, outgoing] : outgoing_) {
    if (outgoing.hand_over != nullptr) outgoing.hand_over->Abandon();
  }
  outgoing_.clear();
}

}  // namespace tandem::gateway

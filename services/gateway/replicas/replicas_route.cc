// Replicas: where requests go.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/time/clock.h"
#include "services/gateway/replicas/replicas.h"
#include "services/gateway/replicas/route.h"

namespace tandem::gateway {
namespace {

// Prompt rows that a replica for decoding computes itself.
constexpr size_t kFewPromptRows = 64;
// Times that a request looks for a replica: each may leave before it has the request.
constexpr int kMostRounds = 8;

// What one replica refuses so, another may take: its queue is full, or it leaves, or is too slow.
bool MayFitElsewhere(const absl::Status& refused) {
  return absl::IsResourceExhausted(refused) || absl::IsUnavailable(refused) ||
         absl::IsDeadlineExceeded(refused);
}

}  // namespace

PrefixKeys Replicas::KeysOf(const EngineRequest& request) const {
  if (!options_.prefix_cache || !request.use_prefix_cache || request.embedding ||
      request.prompt_logprobs) {
    return {};
  }
  return PrefixKeysOf(PrefixScopeOf(request), CacheTokensOf(request), block_tokens_);
}

Replicas::Rank Replicas::RankOf(uint32_t r, const EngineRequest& request, const PrefixKeys& keys,
                                Work work) const {
  const Replica& replica = *replicas_[r];
  if (replica.engine == nullptr || replica.ended) return Rank::kGone;
  if (!replica.ready) return Rank::kLost;
  if (replica.leaving) return Rank::kLeaves;
  if (request.prompt.size() >= replica.engine->max_sequence_len()) return Rank::kTooSmall;
  const uint32_t picture_rows = replica.engine->max_picture_rows();
  if (std::ranges::any_of(request.pictures, [picture_rows](const PictureSpan& picture) {
        return picture.num_rows > picture_rows;
      })) {
    return Rank::kTooSmall;
  }
  const ReplicaRole role = replica.start.role;
  if (role == ReplicaRole::kBoth) return Rank::kServes;
  if (role == ReplicaRole::kPrompts) {
    return work == Work::kPrompt ? Rank::kServes : Rank::kOtherRole;
  }
  if (work == Work::kDecode) return Rank::kBest;
  const size_t known = directory_.Find(r, keys) * block_tokens_;
  return request.prompt.size() <= known + kFewPromptRows ? Rank::kBest : Rank::kOtherRole;
}

std::vector<Replicas::Choice> Replicas::ChoicesFor(const EngineRequest& request,
                                                   const PrefixKeys& keys, Work work, Rank least,
                                                   uint32_t except) const {
  std::vector<std::pair<Choice, RouteCandidate>> found;
  const absl::Time now = absl::Now();
  {
    MutexLock lock(mutex_);
    std::vector<Rank> ranks;
    for (uint32_t r = 0; r < replicas_.size(); ++r) {
      ranks.push_back(r == except ? Rank::kGone : RankOf(r, request, keys, work));
    }
    const Rank best = *std::ranges::min_element(ranks);
    if (best > least || best == Rank::kGone) return {};
    const Rank last = std::max(best, std::min(least, Rank::kOtherRole));
    for (uint32_t r = 0; r < replicas_.size(); ++r) {
      if (ranks[r] > last) continue;
      const Replica& replica = *replicas_[r];
      found.push_back({{r, replica.engine, directory_.Find(r, keys), ranks[r]},
                       {.replica = r,
                        .num_given = replica.given,
                        .idle_seconds = absl::ToDoubleSeconds(now - replica.given_at)}});
    }
  }
  const auto num_tokens = static_cast<uint32_t>(request.prompt.size());
  std::map<Rank, std::vector<RouteCandidate>> candidates;
  for (auto& [choice, candidate] : found) {
    const auto known = static_cast<uint32_t>(choice.num_known * block_tokens_);
    candidate.cached_tokens = std::min(known, num_tokens);
    candidate.seconds = choice.engine->PredictEnd(request, candidate.cached_tokens);
    candidate.num_requests = choice.engine->num_requests() + choice.engine->num_expected();
    candidates[choice.rank].push_back(candidate);
  }
  std::vector<Choice> ranked;
  for (auto& [rank, of_rank] : candidates) {
    for (const RouteCandidate& candidate : RankReplicas(std::move(of_rank), num_tokens)) {
      ranked.push_back(std::ranges::find_if(found, [&](const auto& each) {
                         return each.first.replica == candidate.replica;
                       })->first);
    }
  }
  return ranked;
}

absl::Status Replicas::CheckPlace(const EngineRequest& request) const {
  absl::Status status = absl::OkStatus();
  for (const std::shared_ptr<Engine>& engine : engines()) {
    if (engine == nullptr) continue;
    status = engine->CheckPlace(request);
    if (status.ok()) break;
  }
  return status;
}

absl::Status Replicas::SubmitToBest(EngineRequest& request,
                                    const std::shared_ptr<TokenStream>& stream,
                                    const PrefixKeys& keys) {
  absl::Status refused = absl::UnavailableError(
      "every replica has lost the weights that it served: the gateway loads the model again; send "
      "the request again");
  bool tried = false;
  for (const Choice& choice : ChoicesFor(request, keys, Work::kPrompt, Rank::kTooSmall)) {
    // Not std::move: after an error the request is as it was.
    absl::Status status = choice.engine->Submit(static_cast<EngineRequest&&>(request), stream);
    if (status.ok()) {
      NoteGiven(choice, keys);
      return status;
    }
    const bool elsewhere = MayFitElsewhere(status);
    if (!std::exchange(tried, true)) refused = std::move(status);
    if (!elsewhere) break;
  }
  return refused;
}

absl::Status Replicas::Submit(EngineRequest&& request, std::shared_ptr<TokenStream> stream) {
  if (alone_) return engines()[0]->Submit(std::move(request), std::move(stream));
  const Api api = request.api;
  if (options_.shared_prefixes) request.cache_scope.clear();
  const PrefixKeys keys = KeysOf(request);
  absl::Status status;
  // Again, because replicas that were chosen may have left meanwhile.
  for (int round = 0; round < kMostRounds; ++round) {
    status = SubmitToBest(request, stream, keys);
    if (!absl::IsUnavailable(status)) break;
  }
  if (!status.ok()) ReportRefused(api, status);
  return status;
}

void Replicas::NoteGiven(const Choice& choice, const PrefixKeys& keys) {
  MutexLock lock(mutex_);
  Replica& replica = *replicas_[choice.replica];
  ++replica.given;
  replica.given_at = absl::Now();
  if (choice.num_known > 0) ++replica.given_known;
  if (replica.ready) directory_.Add(choice.replica, keys);
}

void Replicas::NoteKept(uint32_t r, const EngineRequest& request,
                        std::span<const uint32_t> tokens) {
  if (!options_.prefix_cache || !request.use_prefix_cache) return;
  const PrefixKeys keys = PrefixKeysOf(PrefixScopeOf(request), tokens, block_tokens_);
  MutexLock lock(mutex_);
  if (replicas_[r]->ready) directory_.Add(r, keys);
}

bool Replicas::AnyServesBut(uint32_t r) const {
  for (uint32_t other = 0; other < replicas_.size(); ++other) {
    const Replica& replica = *replicas_[other];
    if (other != r && replica.ready && !replica.leaving && replica.engine != nullptr) return true;
  }
  return false;
}

bool Replicas::AnyReadyBut(uint32_t r) const {
  MutexLock lock(mutex_);
  for (uint32_t other = 0; other < replicas_.size(); ++other) {
    const Replica& replica = *replicas_[other];
    if (other != r && replica.ready && replica.engine != nullptr) return true;
  }
  return false;
}

bool Replicas::MoveFrom(uint32_t r, std::unique_ptr<MovedRequest>& moved) {
  const EngineRequest& request = moved->run->request();
  const Work work = moved->run->num_decided() > 0 ? Work::kDecode : Work::kPrompt;
  const PrefixKeys keys = KeysOf(request);
  if (moved->hand_over != nullptr) {
    // Whoever else is there: the KV is at this one.
    Choice receiver{.replica = moved->hand_over->receiver()};
    {
      MutexLock lock(mutex_);
      const Replica& replica = *replicas_[receiver.replica];
      if (replica.ready && !replica.ended) receiver.engine = replica.engine;
      receiver.num_known = directory_.Find(receiver.replica, keys);
    }
    if (receiver.engine == nullptr || !receiver.engine->Adopt(moved)) return false;
    NoteGiven(receiver, keys);
    return true;
  }
  for (const Choice& choice : ChoicesFor(request, keys, work, Rank::kLost, r)) {
    if (!choice.engine->Adopt(moved)) continue;
    NoteGiven(choice, keys);
    return true;
  }
  return false;
}

bool Replicas::OfferFrom(uint32_t r, const EngineRequest& request,
                         const std::shared_ptr<KvHandOver>& hand_over) {
  for (const Choice& choice :
       ChoicesFor(request, KeysOf(request), Work::kDecode, Rank::kServes, r)) {
    if (std::ranges::count(hand_over->refused_by(), choice.replica) > 0) continue;
    hand_over->SetReceiver(choice.replica);
    if (choice.engine->Expect(hand_over)) return true;
  }
  return false;
}

}  // namespace tandem::gateway

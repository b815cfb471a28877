#include "services/gateway/engine/request_run.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

bool Contains(const std::vector<int32_t>& ids, uint32_t token) {
  return std::find(ids.begin(), ids.end(), static_cast<int64_t>(token)) != ids.end();
}

}  // namespace

std::string PrefixScopeOf(const EngineRequest& request) {
  if (request.cache_scope.empty() && request.cache_salt.empty()) return "";
  // No scope of a client has a NUL.
  return request.cache_scope + '\0' + request.cache_salt;
}

std::vector<uint32_t> CacheTokensOf(const EngineRequest& request) {
  std::vector<uint32_t> tokens = request.prompt;
  for (const PictureSpan& span : request.pictures) {
    std::fill_n(tokens.begin() + span.first, span.num_rows, span.picture->key);
  }
  return tokens;
}

RequestRun::RequestRun(EngineRequest request, const Tokenizer& tokenizer,
                       std::shared_ptr<TokenStream> stream, absl::Time submitted)
    : request_(std::move(request)),
      stream_(std::move(stream)),
      submitted_(submitted),
      sampler_(request_.sampling, request_.prompt, request_.num_alternatives),
      decoder_(tokenizer, request_.stops, request_.shown_tokens) {}

SequenceSpec RequestRun::MakeSequenceSpec(uint64_t id) const {
  return {.id = id,
          .prompt = CacheTokensOf(request_),
          .pictures = request_.pictures,
          .prompt_logprobs = request_.prompt_logprobs,
          .pooled = request_.embedding,
          .needs = needs(),
          .guess = GuessRule::For(request_.sampling),
          .constrained = constrained(),
          .max_answer = request_.max_tokens,
          .use_prefix_cache = request_.use_prefix_cache,
          .prefix_scope = PrefixScopeOf(request_),
          .tenant = request_.tenant,
          .priority = request_.priority};
}

OutputNeeds RequestRun::NeedsWithin(uint32_t ahead) const {
  uint32_t num_candidates =
      std::max(sampler_.NumCandidatesWithin(ahead), sampler_.watches_ties() ? 2u : 1u);
  if (request_.prompt_logprobs) {
    num_candidates = std::max(num_candidates, request_.num_alternatives);
  }
  return {.logits = sampler_.NeedsLogitsWithin(ahead),
          .num_candidates = std::clamp(num_candidates, 1u, kMaxCandidates)};
}

bool RequestRun::MarkStarted(absl::Time now, uint32_t first_position) {
  if (started_.has_value()) return false;
  started_ = now;
  cached_tokens_ = first_position;
  return true;
}

void RequestRun::AddDeviceTime(const std::string& worker, double seconds, double joules) {
  auto time = std::ranges::find_if(
      device_times_, [&](const v1::DeviceTime& other) { return other.worker() == worker; });
  if (time == device_times_.end()) {
    time = device_times_.emplace(time);
    time->set_worker(worker);
  }
  time->set_seconds(time->seconds() + seconds);
  time->set_joules(time->joules() + joules);
}

absl::Status RequestRun::AddPromptToken(uint32_t target, const OutputResult& result) {
  if (result.num_nonfinite > 0) {
    return absl::DataLossError(
        absl::StrFormat("the model gave %d logits that are not finite at prompt token %d",
                        result.num_nonfinite, prompt_tokens_.size()));
  }
  Decision decision{.token = target, .logprob = result.target_logit - result.log_sum_exp};
  const uint32_t num_candidates = std::min(result.num_candidates, kMaxCandidates);
  for (uint32_t i = 0; i < std::min(request_.num_alternatives, num_candidates); ++i) {
    decision.alternatives.push_back(
        {result.candidates[i].token, result.candidates[i].logit - result.log_sum_exp});
  }
  prompt_tokens_.push_back(std::move(decision));
  return absl::OkStatus();
}

absl::StatusOr<bool> RequestRun::AddPooled(uint32_t first_row, uint32_t num_rows,
                                           std::span<const float> sum) {
  if (first_row == 0) {
    pooled_.assign(sum.size(), 0.0);
    num_pooled_ = 0;
  }
  TANDEM_CHECK(first_row == num_pooled_ && sum.size() == pooled_.size());
  num_pooled_ += num_rows;
  for (size_t i = 0; i < sum.size(); ++i) pooled_[i] += sum[i];
  if (num_pooled_ < request_.prompt.size()) return false;
  double squares = 0;
  for (const double value : pooled_) squares += value * value;
  // The mean and its multiples have the same direction.
  const double length = std::sqrt(squares);
  if (!(length > 0) || !std::isfinite(length)) {
    return absl::DataLossError(
        absl::StrFormat("the model gave hidden states whose sum over %d tokens has length %g",
                        num_pooled_, length));
  }
  embedding_.reserve(pooled_.size());
  for (const double value : pooled_) embedding_.push_back(static_cast<float>(value / length));
  return true;
}

absl::StatusOr<RequestRun::Outcome> RequestRun::TakeSample(const OutputResult& result,
                                                           std::span<const float> logits,
                                                           const StopRules& rules) {
  Outcome outcome;
  outcome.update.prompt_tokens = std::exchange(prompt_tokens_, {});
  if (request_.max_tokens == 0) {
    outcome.finish = v1::FINISH_REASON_LENGTH;
    return outcome;
  }
  // Logits that a neighbour asked for are left alone: an answer never depends on neighbours.
  if (!sampler_.NeedsLogits()) logits = {};
  TANDEM_ASSIGN_OR_RETURN(Decision decision, sampler_.Sample(result, logits));
  AddToken(std::move(decision), rules, outcome);
  return outcome;
}

void RequestRun::AddToken(Decision decision, const StopRules& rules, Outcome& outcome) {
  if (outcome.finish != v1::FINISH_REASON_UNSPECIFIED) return;
  ++num_decided_;
  last_token_ = absl::Now();
  if (!first_token_.has_value()) first_token_ = last_token_;
  const uint32_t token = decision.token;
  outcome.tokens.push_back(token);
  outcome.update.tokens.push_back(std::move(decision));
  StreamDecoder::Piece piece;
  const bool obeys_eos = !request_.ignore_eos || constrained();
  const bool stop_token = obeys_eos && Contains(rules.stop_token_ids, token);
  if (!stop_token) piece = decoder_.Append(token);
  outcome.update.text += piece.text;
  outcome.finish = Finish(stop_token || piece.stopped, rules);
  if (outcome.finish != v1::FINISH_REASON_UNSPECIFIED && !piece.stopped) {
    outcome.update.text += decoder_.Finish();
  }
}

// Its probability among the allowed tokens is 1.
Decision RequestRun::Forced(uint32_t token) const {
  Decision decision{.token = token};
  if (request_.num_alternatives > 0) decision.alternatives.push_back({token, 0.0f});
  return decision;
}

std::unique_ptr<ConstraintWork> RequestRun::MakeWork(uint64_t id) const {
  auto work = std::make_unique<ConstraintWork>();
  work->request = id;
  work->state = state_;
  work->grammar = request_.constraint;
  work->sender = request_.tenant.name;
  if (!deciding_.empty()) work->token = deciding_.back().token;
  return work;
}

void RequestRun::TakeState(ConstraintWork& work) {
  state_ = std::move(work.state);
  mask_ = std::move(work.mask);
}

size_t RequestRun::MakeGuessMasks(std::span<const uint32_t> guesses, const ForcedEncoder& encode,
                                  uint64_t most_quick) {
  guess_masks_.clear();
  if (state_.has_value() && !complete_ && deciding_.empty()) {
    guess_masks_ = GuessMasks(encode, *request_.constraint, most_quick, *state_, mask_, guesses);
  }
  return guess_masks_.size();
}

std::vector<uint32_t> RequestRun::BeginConstraint(ConstraintWork& work, const StopRules& rules) {
  TakeState(work);
  const uint64_t room = std::min<uint64_t>(
      request_.max_tokens,
      rules.max_sequence_len - std::min<uint64_t>(rules.max_sequence_len, request_.prompt.size()));
  if (request_.max_tokens == 0) work.forced.clear();
  for (const uint32_t token : work.forced) {
    deciding_.push_back(Forced(token));
    sampler_.Take(token);
  }
  // The prompt is computed for its own sake, and with it the answer is complete.
  complete_ = work.done || work.forced.size() >= room;
  forced_all_ = work.done;
  if (!complete_) return work.forced;
  if (mask_.empty()) mask_.assign(request_.constraint->mask_words(), ~0u);
  return {};
}

absl::StatusOr<bool> RequestRun::Decide(const OutputResult& result, std::span<const float> logits) {
  if (complete_) return true;
  if (!sampler_.NeedsLogits()) logits = {};
  TANDEM_ASSIGN_OR_RETURN(Decision decision, sampler_.Sample(result, logits, mask_));
  deciding_.push_back(std::move(decision));
  return false;
}

RequestRun::Outcome RequestRun::Conclude(ConstraintWork* work, const StopRules& rules) {
  Outcome outcome;
  outcome.update.prompt_tokens = std::exchange(prompt_tokens_, {});
  const bool drawn = work != nullptr;
  const size_t num_appended = deciding_.size() - (drawn ? 1 : 0);  // with the prompt
  const size_t num_tokens = deciding_.size() + (drawn ? work->forced.size() : 0);
  for (Decision& decision : std::exchange(deciding_, {})) {
    AddToken(std::move(decision), rules, outcome);
  }
  for (const uint32_t token : drawn ? work->forced : std::vector<uint32_t>()) {
    sampler_.Take(token);
    AddToken(Forced(token), rules, outcome);
  }
  if (outcome.finish == v1::FINISH_REASON_UNSPECIFIED && (!drawn || work->done)) {
    outcome.finish = request_.max_tokens == 0 ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP;
    outcome.update.text += decoder_.Finish();
  }
  // The last token that there is room for completes the text.
  const bool whole = (drawn ? work->done : forced_all_) && outcome.tokens.size() == num_tokens;
  if (outcome.finish == v1::FINISH_REASON_LENGTH && whole && num_tokens > 0) {
    outcome.finish = v1::FINISH_REASON_STOP;
  }
  if (drawn) {
    outcome.tokens.erase(outcome.tokens.begin(),
                         outcome.tokens.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                      num_appended, outcome.tokens.size())));
    TakeState(*work);
  }
  return outcome;
}

v1::FinishReason RequestRun::Finish(bool stopped, const StopRules& rules) const {
  if (stopped) return v1::FINISH_REASON_STOP;
  const uint64_t num_tokens = request_.prompt.size() + num_decided_;
  if (num_decided_ >= request_.max_tokens || num_tokens >= rules.max_sequence_len) {
    return v1::FINISH_REASON_LENGTH;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

v1::Usage RequestRun::MakeUsage(absl::Time now) const {
  v1::Usage usage;
  usage.set_prompt_tokens(static_cast<uint32_t>(request_.prompt.size()));
  usage.set_completion_tokens(num_decided_);
  uint32_t image_tokens = 0;
  for (const PictureSpan& span : request_.pictures) image_tokens += span.num_rows;
  usage.set_image_tokens(image_tokens);
  usage.set_cached_tokens(cached_tokens_);
  usage.set_accepted_prediction_tokens(num_accepted_);
  usage.set_rejected_prediction_tokens(num_verified_ - num_accepted_);
  usage.set_seed(request_.sampling.seed);
  usage.set_queue_seconds(absl::ToDoubleSeconds(started_.value_or(now) - arrived()));
  usage.set_first_token_seconds(absl::ToDoubleSeconds(first_token_.value_or(now) - arrived()));
  usage.set_total_seconds(absl::ToDoubleSeconds(now - arrived()));
  usage.mutable_device_times()->Assign(device_times_.begin(), device_times_.end());
  return usage;
}

}  // namespace tandem::gateway

// One request inside the engine: from its first row to its last token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/common/trace/trace_context.h"
#include "services/gateway/constraint/constraint.h"
#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/engine/constraint_work.h"
#include "services/gateway/engine/token_stream.h"
#include "services/gateway/picture/picture_stage.h"
#include "services/gateway/sampling/sampler.h"
#include "services/gateway/scheduler/sequence.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {

struct Conversation;  // chat_template.h

inline constexpr uint32_t kNoTokenLimit = std::numeric_limits<uint32_t>::max();

// By which API a request came.
enum class Api : uint8_t { kGrpc, kRest, kOpenAi, kOllama, kAnthropic };
inline constexpr int kNumApis = 5;

// Already validated.
struct EngineRequest {
  Api api = Api::kGrpc;
  bool chat = false;  // asked for as a conversation
  // The prompt's embedding is wanted and nothing generated: see RequestRun::AddPooled.
  bool embedding = false;
  std::string request_id;
  RequestTrace trace;
  std::vector<uint32_t> prompt;
  std::vector<PictureSpan> pictures;  // of the prompt, in order; their tokens are not looked at
  // The files that `pictures` are encoded from; null: none, or `pictures` have them encoded.
  std::shared_ptr<const std::vector<std::string>> picture_files;  // shared by n choices
  // By file: where it is fetched from first; empty: it is there.  Null: all are there.
  std::shared_ptr<const std::vector<std::string>> picture_urls;  // likewise
  // From what `prompt` is made once more if pictures have crops; null: none will.
  std::shared_ptr<const Conversation> conversation;  // likewise
  // When it began to wait for its pictures, and had them; infinite: it has none.
  absl::Time pictures_begin = absl::InfiniteFuture();
  absl::Time pictures_end = absl::InfiniteFuture();
  std::shared_ptr<const PictureTimes> picture_times;  // shared by n choices; null: it has none
  SamplingParams sampling;
  uint32_t max_tokens = kNoTokenLimit;  // 0: the prompt is computed and nothing generated
  std::vector<std::string> stops;
  std::vector<uint32_t> shown_tokens;  // control tokens whose names are part of the answer's text
  bool ignore_eos = false;
  // What the client expects of the answer, for drafters; may be empty.
  std::vector<uint32_t> prediction;
  uint32_t num_alternatives = 0;  // reported with each token
  bool prompt_logprobs = false;
  bool use_prefix_cache = true;
  // Prefixes are shared between requests with the same of both: the client's (HttpClient), and the
  // salt of the request itself.
  std::string cache_scope;
  std::string cache_salt;
  TenantRef tenant;      // whose share of the device it uses
  int32_t priority = 0;  // the lower number goes first
  absl::Time deadline = absl::InfiniteFuture();
  // What `constraint` is compiled from, before the request reaches the engine; null: nothing.
  std::shared_ptr<const gateway::constraint::ConstraintSource> constraint_source;
  // The field of tandem.v1 that has this source, for errors.
  std::string constraint_field;
  // What the answer must look like, over the model's vocabulary; null: anything.  End tokens come
  // where the text may end, and the answer ends where nothing may follow, ignore_eos or not.
  std::shared_ptr<gateway::constraint::Constraint>
      constraint;  // shared by the answers that follow it
};

// Requests with the same one share prefixes.  Empty: those of all clients without a salt.
std::string PrefixScopeOf(const EngineRequest& request);

// The prompt as the prefix cache tells it from others: the rows of a picture have its key.
std::vector<uint32_t> CacheTokensOf(const EngineRequest& request);

// What every request's end is decided by.
struct StopRules {
  std::vector<int32_t> stop_token_ids;
  uint32_t max_sequence_len = 0;  // tokens, prompt included
};

// Single-thread (the engine's).
class RequestRun {
 public:
  // `tokenizer`: Borrowed; must outlive this.  `stream` is shared with the reader.
  RequestRun(EngineRequest request, const Tokenizer& tokenizer, std::shared_ptr<TokenStream> stream,
             absl::Time submitted);

  const EngineRequest& request() const { return request_; }
  const std::shared_ptr<TokenStream>& stream() const { return stream_; }
  absl::Time submitted() const { return submitted_; }
  // Times that clients and operators see begin here: with the wait for its pictures.
  absl::Time arrived() const { return std::min(submitted_, request_.pictures_begin); }
  SequenceSpec MakeSequenceSpec(uint64_t id) const;
  OutputNeeds needs() const { return NeedsWithin(0); }
  // Of whichever of the next `ahead` + 1 tokens need most.
  OutputNeeds NeedsWithin(uint32_t ahead) const;
  uint32_t num_decided() const { return num_decided_; }

  // Rows of this request are computed, from `first_position` on; true when it is for the first
  // time.
  bool MarkStarted(absl::Time now, uint32_t first_position);
  // The rows before `end` are computed.
  void NoteComputed(uint32_t end) {
    if (end <= num_computed_) return;  // once more, after a loss
    num_computed_ = end;
    failed_attempts = 0;
  }
  // Rows of the prompt that remain before the first token.
  uint32_t prompt_left() const {
    const auto prompt = static_cast<uint32_t>(request_.prompt.size());
    return num_decided_ > 0 ? 0
                            : prompt - std::min(prompt, std::max(num_computed_, cached_tokens_));
  }
  // Tokens of the prompt that were in the KV cache when it started.
  uint32_t cached_tokens() const { return cached_tokens_; }
  bool started() const { return started_.has_value(); }
  std::optional<absl::Time> started_at() const { return started_; }
  std::optional<absl::Time> first_token_at() const { return first_token_; }
  std::optional<absl::Time> last_token_at() const { return last_token_; }
  // Threads of the engine's pool have work of it (constraint_work.h).
  bool has_work = false;
  // Steps that failed with rows of this request since rows were computed that never were before.
  uint32_t failed_attempts = 0;
  // `seconds` of a worker's device time, and `joules`, were spent on this request.
  void AddDeviceTime(const std::string& worker, double seconds, double joules);

  // Guesses of drafters for this answer that were verified, and how many of them were accepted.
  void AddVerified(uint32_t num_guesses) { num_verified_ += num_guesses; }
  void AddAccepted() { ++num_accepted_; }
  // From now on draws that last bits could decide are counted (Sampler::WatchTies); outputs then
  // have a second candidate to compare with.
  void WatchTies(double rounding) { sampler_.WatchTies(rounding); }
  // Whether the token drawn last was so near to another.
  bool near_tie() const { return sampler_.near_tie(); }
  // Which drafter made the guesses that the step under way verifies.
  void set_drafter(size_t drafter) { drafter_ = drafter; }
  size_t drafter() const { return drafter_; }
  uint32_t num_verified() const { return num_verified_; }
  uint32_t num_accepted() const { return num_accepted_; }

  // The head's word on prompt token `target`.  DATA_LOSS: logits that are not finite.
  absl::Status AddPromptToken(uint32_t target, const OutputResult& result);

  // The sum of the final-normed hidden states of the prompt's rows [first_row, first_row +
  // num_rows); true when it was the last: the embedding is there.  Sums begin again with row 0.
  // REQUIRES embedding; rows in order.  DATA_LOSS: the mean has no direction.
  absl::StatusOr<bool> AddPooled(uint32_t first_row, uint32_t num_rows, std::span<const float> sum);
  // The mean of the prompt's hidden states, divided by its Euclidean length; empty before that.
  std::vector<float> TakeEmbedding() { return std::exchange(embedding_, {}); }

  // What a sampled output led to.
  struct Outcome {
    StreamUpdate update;
    // The tokens decided, to be appended to the sequence unless the request is over: one, and those
    // that it forces.
    std::vector<uint32_t> tokens;
    // v1::FINISH_REASON_UNSPECIFIED: it goes on.
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  };
  // Decides the next token.  DATA_LOSS: logits that are not finite.  REQUIRES !constrained().
  absl::StatusOr<Outcome> TakeSample(const OutputResult& result, std::span<const float> logits,
                                     const StopRules& rules);

  // A constrained answer: BeginConstraint, then for each token Decide and Conclude, with work of
  // constraint_work.h before each but Decide.
  bool constrained() const { return request_.constraint != nullptr; }
  // The work that is due: before the first token, or after Decide.
  std::unique_ptr<ConstraintWork> MakeWork(uint64_t id) const;
  // Takes the work before the first token.  Returns the forced tokens that the prompt is continued
  // with.
  std::vector<uint32_t> BeginConstraint(ConstraintWork& work, const StopRules& rules);
  // Draws the next token; Conclude follows.  True: there is nothing to draw, the answer is complete
  // with its forced tokens, and `work` of Conclude is null.  DATA_LOSS as TakeSample.
  absl::StatusOr<bool> Decide(const OutputResult& result, std::span<const float> logits);
  Outcome Conclude(ConstraintWork* work, const StopRules& rules);
  // Of the next token, [MaskWords(vocab_size)]; of the token after so many guesses.
  std::span<const uint32_t> mask(size_t num_guesses = 0) const {
    return num_guesses == 0 ? mask_ : guess_masks_[num_guesses - 1];
  }
  // Tokens forced before the first draw.  REQUIRES that nothing was drawn yet.
  std::span<const Decision> forced_first() const {
    return complete_ ? std::span<const Decision>() : deciding_;
  }
  // Makes the masks after as many of the guesses for the next tokens as can be verified, and returns
  // that number (GuessMasks).
  size_t MakeGuessMasks(std::span<const uint32_t> guesses, const ForcedEncoder& encode,
                        uint64_t most_quick);
  size_t num_guess_masks() const { return guess_masks_.size(); }
  // The report at the end.
  v1::Usage MakeUsage(absl::Time now) const;

 private:
  v1::FinishReason Finish(bool stopped, const StopRules& rules) const;
  // Adds a decided token to `outcome`, unless it is over.
  void AddToken(Decision decision, const StopRules& rules, Outcome& outcome);
  Decision Forced(uint32_t token) const;
  void TakeState(ConstraintWork& work);

  const EngineRequest request_;
  const std::shared_ptr<TokenStream> stream_;
  const absl::Time submitted_;
  Sampler sampler_;
  StreamDecoder decoder_;
  std::vector<Decision> prompt_tokens_;  // until they are handed over with the first token
  std::vector<double> pooled_;           // over rows [0, num_pooled_)
  uint32_t num_pooled_ = 0;
  std::vector<float> embedding_;
  std::optional<constraint::ConstraintState> state_;
  std::vector<uint32_t> mask_;
  std::vector<std::vector<uint32_t>> guess_masks_;
  std::vector<Decision>
      deciding_;             // tokens not concluded: forced before the first, then a drawn one
  bool complete_ = false;    // no token is drawn
  bool forced_all_ = false;  // forced tokens are the whole answer
  uint32_t num_decided_ = 0;
  uint32_t cached_tokens_ = 0;
  uint32_t num_computed_ = 0;
  uint32_t num_verified_ = 0;
  uint32_t num_accepted_ = 0;
  size_t drafter_ = 0;
  std::optional<absl::Time> started_;
  std::optional<absl::Time> first_token_;
  std::optional<absl::Time> last_token_;
  std::vector<v1::DeviceTime> device_times_;
};

}  // namespace tandem::gateway

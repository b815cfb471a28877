#include "tools/simulate/run/clients.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/mutex.h"
#include "tools/simulate/run/expected.h"
#include "tools/simulate/threads/world.h"

namespace tandem::simulate {
namespace {

using gateway::StreamEnd;
using gateway::TokenStream;

constexpr uint32_t kMaxUnread = 100'000;

struct Ready {
  Mutex mutex;
  CondVar changed;
  bool ready ABSL_GUARDED_BY(mutex) = false;
};

// Waits for a notification; false: `until` has passed.
bool Await(Ready& state, absl::Time until) {
  MutexLock lock(state.mutex);
  while (!state.ready) {
    if (!state.changed.WaitUntil(state.mutex, until) && !state.ready) return false;
  }
  state.ready = false;
  return true;
}

// Statuses that the scenario's troubles explain.  `submitted`: the request was in the queue.
bool IsExplained(const absl::Status& status, const Scenario& scenario, bool submitted) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return !submitted;  // the queue is full
    case absl::StatusCode::kUnavailable:
      return scenario.MayLoseWorkers();
    case absl::StatusCode::kInternal:
      return scenario.MayFailSteps();
    default:
      return false;
  }
}

class Client {
 public:
  Client(const SimulatedRequest& simulated, gateway::RequestSink& gateway, const Scenario& scenario,
         const Note& note, Findings& findings)
      : simulated_(simulated),
        request_(simulated.request),
        gateway_(gateway),
        scenario_(scenario),
        note_(note),
        findings_(findings) {}

  void Run() {
    NameThread("client of " + request_.request_id);
    const auto state = std::make_shared<Ready>();
    const auto stream = std::make_shared<TokenStream>(kMaxUnread, [state] {
      MutexLock lock(state->mutex);
      state->ready = true;
      state->changed.SignalAll();
    });
    const absl::Status submitted = gateway_.Submit(request_, stream);
    if (!submitted.ok()) {
      ++findings_.num_refused;
      Say("is refused: " + submitted.ToString());
      if (!IsExplained(submitted, scenario_, false))
        Violation("refused with " + submitted.ToString());
      return;
    }
    Say("is submitted");
    absl::Time cancel = absl::Now() + simulated_.cancel_after;
    while (!end_.has_value()) {
      if (!Await(*state, cancel)) {
        Say("is cancelled");
        stream->Cancel();
        cancelled_ = true;
        cancel = absl::InfiniteFuture();
        continue;
      }
      if (simulated_.pause > absl::ZeroDuration()) absl::SleepFor(simulated_.pause);
      TokenStream::Batch batch = stream->Take();
      for (const auto& decision : batch.update.tokens) tokens_.push_back(decision.token);
      num_prompt_tokens_ += batch.update.prompt_tokens.size();
      if (batch.end.has_value()) end_ = std::move(batch.end);
    }
    Check();
  }

 private:
  void Say(const std::string& text) { note_(request_.request_id + " " + text); }
  void Violation(const std::string& text) {
    findings_.violations.push_back(absl::StrFormat("%s: %s", request_.request_id, text));
    Say("VIOLATION: " + text);
  }

  void Check() {
    const absl::Status& status = end_->status;
    Say(absl::StrFormat("ends with %d tokens, %s", tokens_.size(), status.ToString()));
    if (request_.embedding) return CheckEmbedding();
    const std::vector<uint32_t> expected = ExpectedTokens(request_);
    const auto [mine, theirs] = std::ranges::mismatch(tokens_, expected);
    if (mine != tokens_.end()) {
      const auto at = static_cast<size_t>(mine - tokens_.begin());
      Violation(absl::StrFormat("token %d of %d is %d, must be %s", at, tokens_.size(), *mine,
                                theirs == expected.end() ? "none" : std::to_string(*theirs)));
    }
    if (!status.ok()) return CheckError();
    ++findings_.num_answered;
    if (tokens_.size() != expected.size()) {
      Violation(absl::StrFormat("%d of %d tokens, and OK", tokens_.size(), expected.size()));
    }
    if (end_->usage.completion_tokens() != tokens_.size()) {
      Violation(absl::StrFormat("usage has %d tokens of %d", end_->usage.completion_tokens(),
                                tokens_.size()));
    }
    if (request_.prompt_logprobs && num_prompt_tokens_ + 1 != request_.prompt.size()) {
      Violation(absl::StrFormat("%d tokens of a prompt of %d have log-probabilities",
                                num_prompt_tokens_, request_.prompt.size()));
    }
  }
  void CheckEmbedding() {
    if (!end_->status.ok()) return CheckError();
    ++findings_.num_answered;
    if (end_->embedding != ExpectedEmbedding(request_)) Violation("a wrong embedding");
  }
  void CheckError() {
    if (absl::IsCancelled(end_->status)) {
      ++findings_.num_cancelled;
      if (!cancelled_) Violation("ended as cancelled, and was not");
      return;
    }
    ++findings_.num_ended;
    if (!IsExplained(end_->status, scenario_, true))
      Violation("ended with " + end_->status.ToString());
  }

  const SimulatedRequest& simulated_;
  const gateway::EngineRequest& request_;
  gateway::RequestSink& gateway_;
  const Scenario& scenario_;
  const Note& note_;
  Findings& findings_;
  std::vector<uint32_t> tokens_;
  size_t num_prompt_tokens_ = 0;
  std::optional<StreamEnd> end_;
  bool cancelled_ = false;
};

}  // namespace

void RunClient(const SimulatedRequest& simulated, gateway::RequestSink& gateway,
               const Scenario& scenario, const Note& note, Findings& findings) {
  Client(simulated, gateway, scenario, note, findings).Run();
}

}  // namespace tandem::simulate

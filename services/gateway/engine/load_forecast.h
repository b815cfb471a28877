// When the requests that the engine has will end, and when one more would: by what steps take and
// how long answers are.
//
// Both are measured (StepCosts, ended requests).  A forecast runs the engine's load ahead of time,
// one event for each end of a request:
//
//   running   [3: 40 tokens left | 5: 12 | 6: 200 prompt rows, then 64]    12 steps of 3 decode rows,
//   waiting   [7 | 8 | 9]                                                  with the 200 prompt rows
//                                                                          in them -> 5 ends, 7 runs
//
// Places go by priority and are shared between tenants by weight, as the scheduler does; rows and KV blocks are not
// told apart.  The error is that of the measured rate and of the answers' lengths.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/gateway/engine/step_costs.h"

namespace tandem::gateway {

// The figures of a request that are known when it arrives.
struct RequestSize {
  std::string tenant;
  uint32_t weight = 1;
  int32_t priority = 0;
  uint32_t prompt_tokens = 0;
  // Most tokens of the answer; kOpenAnswer: as many as it takes.  0: a prompt without an answer.
  uint32_t max_answer = 0;
};
inline constexpr uint32_t kOpenAnswer = std::numeric_limits<uint32_t>::max();

// How far a running request is.
struct RequestProgress {
  uint64_t id = 0;
  uint32_t prompt_left = 0;  // rows
  uint32_t decided = 0;      // tokens of the answer
};

// Pure data: no clock.  Single-thread.
class LoadForecast {
 public:
  // `max_running` sequences at once, `max_rows` rows in a step.
  LoadForecast(uint32_t max_running, uint32_t max_rows)
      : max_rows_(max_rows), places_(max_running) {}

  // `id`: higher than all before, but for one from another engine, which counts as having arrived so
  // early.
  void Admitted(uint64_t id, const RequestSize& size);
  // Those that run, in any order; the others wait.  `places`: sequences that can run at once now,
  // which KV blocks may limit further.
  void Progress(const std::vector<RequestProgress>& running, uint32_t places);
  // Forgets a request that has ended.  REQUIRES it was admitted.
  RequestSize Remove(uint64_t id);
  // An answer of `tokens` came to its end, by its limit or before.  Those that were cancelled or
  // failed teach nothing.
  void AnswerEnded(uint32_t tokens, bool by_limit);
  // Tokens that a decode row leads to, with accepted guesses: of late.
  void SetPace(double tokens) { pace_ += 0.25 * (tokens - pace_); }
  StepCosts& costs() { return costs_; }
  const StepCosts& costs() const { return costs_; }

  // The end of an admitted request.
  struct End {
    double seconds = 0.0;  // from the last Progress
    std::string tenant;
    uint32_t prompt_tokens = 0;
  };
  // The first `most` ends, in order.  Empty if nothing was measured yet.
  std::vector<End> Ends(size_t most) const;

  // Seconds until the end of one more request, and of one that has the device for itself.  Before
  // any answer has ended (!knows_answers) its first token alone counts.  nullopt: no step was
  // measured yet.
  std::optional<double> Predict(const RequestSize& size) const;
  std::optional<double> PredictAlone(const RequestSize& size) const;
  bool knows_answers() const { return any_answer_; }

  size_t num_requests() const { return requests_.size(); }

 private:
  struct Request {
    const std::string* tenant = nullptr;  // a key of num_requests_
    uint32_t weight = 1;
    int32_t priority = 0;
    uint32_t prompt_tokens = 0;
    uint32_t max_answer = 0;
    bool running = false;
    uint32_t prompt_left = 0;
    uint32_t decided = 0;
  };
  class Run;

  // Tokens of a whole answer.
  double AnswerOf(uint32_t max_answer) const;

  const uint32_t max_rows_;
  uint32_t places_;
  StepCosts costs_;
  double pace_ = 1.0;
  std::map<std::string, size_t> num_requests_;  // by tenant; none with 0
  std::map<uint64_t, Request> requests_;        // by arrival
  // Averages over ended answers.
  bool any_answer_ = false;
  double share_by_limit_ = 0.0;
  double mean_tokens_ = 0.0;        // of all
  double mean_tokens_ended_ = 0.0;  // of those that ended before their limit; 0: none did
};

}  // namespace tandem::gateway

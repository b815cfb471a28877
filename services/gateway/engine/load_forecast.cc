#include "services/gateway/engine/load_forecast.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>
#include <unordered_map>

#include "services/common/base/check.h"

namespace tandem::gateway {
namespace {

constexpr double kAnswerShare = 1.0 / 16;  // of the latest answer in the averages
// Answers that ended by their limits do not say how long one with a much higher limit is.
constexpr double kMostStretch = 4.0;
// An answer that is longer than expected goes on for so much of the expected length.
constexpr double kLeastLeft = 0.25;
// Assumed of an open answer before any has ended.
constexpr uint32_t kUnknownAnswer = 256;
// Ends after which a forecast stops: it is then a lower bound.
constexpr size_t kMostEvents = 20'000;

}  // namespace

// The load ahead of time.  Time passes in steps; fractions of steps are allowed.
class LoadForecast::Run {
 public:
  struct Job {
    const Request* request = nullptr;
    size_t tenant = 0;
    double prompt_left = 0.0;
    double answer_left = 0.0;
    uint32_t starts = 0;  // events of an earlier start are void
    bool decoding = false;
    bool ended = false;
  };

  // `extra`: one more request, the last; null: none.
  // `answer`: tokens of an answer by its limit.
  template <class AnswerOf>
  Run(const LoadForecast& load, const Request* extra, const AnswerOf& answer) : load_(load) {
    std::vector<size_t> run;
    for (const auto& [id, request] : load.requests_) {
      const size_t job = Add(request, answer(request.max_answer));
      if (request.running && run.size() < load.places_) {
        run.push_back(job);
      } else {
        tenants_[jobs_[job].tenant].waiting.push_back(job);
      }
    }
    if (extra != nullptr) {
      const size_t job = Add(*extra, answer(extra->max_answer));
      tenants_[jobs_[job].tenant].waiting.push_back(job);
    }
    for (const size_t job : run) Start(job);
    Fill();
    Rebalance();
  }

  // The next request to end; nullptr: all have.
  const Job* Next() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      Job& job = jobs_[event.job];
      if (event.start != job.starts) continue;
      AdvanceTo(event.step);
      if (event.begins_answer) {
        SetDecoding(job, true);
        events_.push({event.step + job.answer_left / load_.pace_, event.job, job.starts, false});
        continue;
      }
      SetDecoding(job, false);
      job.ended = true;
      ++job.starts;
      std::erase(tenants_[job.tenant].running, event.job);
      --num_running_;
      Fill();
      return &job;
    }
    return nullptr;
  }
  double seconds() const { return seconds_; }
  const Job& last() const { return jobs_.back(); }

 private:
  struct Share {
    double weight = 1.0;
    std::vector<size_t> running;  // the youngest last
    std::deque<size_t> waiting;
  };
  struct Event {
    double step = 0.0;
    size_t job = 0;
    uint32_t start = 0;
    bool begins_answer = false;
    bool operator>(const Event& other) const { return step > other.step; }
  };

  size_t Add(const Request& request, double whole_answer) {
    const auto [found, is_new] = index_.emplace(request.tenant, tenants_.size());
    if (is_new) {
      tenants_.emplace_back().weight = request.weight;
    }
    const double decided = request.decided;
    const double most = request.max_answer == kOpenAnswer
                            ? std::numeric_limits<double>::infinity()
                            : std::max(request.max_answer - decided, 0.0);
    const double left = std::max({whole_answer - decided, kLeastLeft * whole_answer, 1.0});
    jobs_.push_back({.request = &request,
                     .tenant = found->second,
                     .prompt_left = static_cast<double>(request.prompt_left),
                     .answer_left = std::min(left, most)});
    return jobs_.size() - 1;
  }

  void SetDecoding(Job& job, bool decoding) {
    if (job.decoding != decoding) decoding ? ++num_decoding_ : --num_decoding_;
    job.decoding = decoding;
  }

  void Start(size_t index) {
    Job& job = jobs_[index];
    tenants_[job.tenant].running.push_back(index);
    ++num_running_;
    prompt_rows_ += job.prompt_left;
    // The step with the last rows of the prompt decides the first token.
    const double prompt_steps = std::ceil(prompt_rows_ / load_.max_rows_);
    const bool computed = job.prompt_left == 0.0;
    job.prompt_left = 0.0;
    if (computed) {
      SetDecoding(job, true);
      return events_.push({step_ + job.answer_left / load_.pace_, index, job.starts, false});
    }
    job.answer_left = std::max(job.answer_left - 1.0, 0.0);
    events_.push({step_ + prompt_steps, index, job.starts, job.answer_left > 0.0});
  }

  // As many as have places, of the tenants with the least by weight first.
  void Fill() {
    while (num_running_ < load_.places_) {
      Share* const share = NextShare();
      if (share == nullptr) return;
      StartNext(*share);
    }
  }
  Share* NextShare() {
    Share* next = nullptr;
    for (Share& share : tenants_) {
      if (share.waiting.empty()) continue;
      if (next == nullptr || Usage(share, 0) < Usage(*next, 0) ||
          (Usage(share, 0) == Usage(*next, 0) && share.waiting.front() < next->waiting.front())) {
        next = &share;
      }
    }
    return next;
  }
  void StartNext(Share& share) {
    const size_t job = share.waiting.front();
    share.waiting.pop_front();
    Start(job);
  }
  static double Usage(const Share& share, int more) {
    return (static_cast<double>(share.running.size()) + more) / share.weight;
  }
  // A tenant over its share gives places to one that waits below it.
  void Rebalance() {
    if (tenants_.size() < 2) return;
    for (uint32_t i = 0; i < load_.places_; ++i) {
      Share* const next = NextShare();
      if (next == nullptr) return;
      Share& most = *std::ranges::max_element(
          tenants_, [](const Share& a, const Share& b) { return Usage(a, 0) < Usage(b, 0); });
      if (Usage(most, 0) <= Usage(*next, 1)) return;
      const size_t victim = most.running.back();
      most.running.pop_back();
      most.waiting.push_front(victim);
      Job& job = jobs_[victim];
      ++job.starts;
      --num_running_;
      SetDecoding(job, false);
      StartNext(*next);
    }
  }

  void AdvanceTo(double step) {
    const double steps = step - step_;
    step_ = step;
    if (steps <= 0.0) return;
    const double rows = std::min(prompt_rows_, steps * load_.max_rows_);
    double with_prompt = 0.0;
    if (rows > 0.0) {
      with_prompt = std::min(steps, std::max(prompt_rows_ / load_.max_rows_, 1.0));
      const auto each = static_cast<uint32_t>(std::max(std::round(rows / with_prompt), 1.0));
      seconds_ += with_prompt * load_.costs_.Step(num_decoding_, each);
      prompt_rows_ -= rows;
    }
    if (num_decoding_ > 0) {
      seconds_ += (steps - with_prompt) * load_.costs_.Step(num_decoding_, 0);
    }
  }

  const LoadForecast& load_;
  std::vector<Job> jobs_;
  std::vector<Share> tenants_;
  std::unordered_map<const std::string*, size_t> index_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint32_t num_running_ = 0;
  uint32_t num_decoding_ = 0;
  double prompt_rows_ = 0.0;  // of running requests, not computed yet
  double step_ = 0.0;
  double seconds_ = 0.0;
};

void LoadForecast::Admitted(uint64_t id, const RequestSize& size) {
  const auto tenant = num_requests_.try_emplace(size.tenant, 0).first;
  ++tenant->second;
  requests_.emplace_hint(requests_.end(), id,
                         Request{.tenant = &tenant->first,
                                 .weight = std::max(size.weight, 1u),
                                 .prompt_tokens = size.prompt_tokens,
                                 .max_answer = size.max_answer,
                                 .prompt_left = size.prompt_tokens});
}

void LoadForecast::Progress(const std::vector<RequestProgress>& running, uint32_t places) {
  places_ = std::max(places, 1u);
  for (const RequestProgress& progress : running) {
    const auto found = requests_.find(progress.id);
    if (found == requests_.end()) continue;
    found->second.running = true;
    found->second.prompt_left = progress.prompt_left;
    found->second.decided = progress.decided;
  }
}

RequestSize LoadForecast::Remove(uint64_t id) {
  const auto found = requests_.find(id);
  TANDEM_CHECK(found != requests_.end());
  const Request& request = found->second;
  const RequestSize size{*request.tenant, request.weight, request.prompt_tokens,
                         request.max_answer};
  requests_.erase(found);
  const auto tenant = num_requests_.find(size.tenant);
  if (--tenant->second == 0) num_requests_.erase(tenant);
  return size;
}

void LoadForecast::AnswerEnded(uint32_t tokens, bool by_limit) {
  const auto average = [first = !any_answer_](double& mean, double value) {
    mean += (first ? 1.0 : kAnswerShare) * (value - mean);
  };
  average(share_by_limit_, by_limit ? 1.0 : 0.0);
  average(mean_tokens_, tokens);
  any_answer_ = true;
  if (by_limit) return;
  mean_tokens_ended_ +=
      (mean_tokens_ended_ == 0.0 ? 1.0 : kAnswerShare) * (tokens - mean_tokens_ended_);
}

double LoadForecast::AnswerOf(uint32_t max_answer) const {
  const double ended = mean_tokens_ended_ > 0.0 ? mean_tokens_ended_ : mean_tokens_;
  if (max_answer == kOpenAnswer) return ended;
  const double most = max_answer;
  return share_by_limit_ * std::min(most, kMostStretch * mean_tokens_) +
         (1.0 - share_by_limit_) * std::min(most, ended);
}

std::vector<LoadForecast::End> LoadForecast::Ends(size_t most) const {
  std::vector<End> ends;
  if (!costs_.known()) return ends;
  Run run(*this, nullptr, [this](uint32_t max_answer) {
    if (any_answer_) return AnswerOf(max_answer);
    return static_cast<double>(max_answer == kOpenAnswer ? kUnknownAnswer : max_answer);
  });
  while (ends.size() < most) {
    const Run::Job* const job = run.Next();
    if (job == nullptr) break;
    ends.push_back({run.seconds(), *job->request->tenant, job->request->prompt_tokens});
  }
  return ends;
}

std::optional<LoadForecast::Prediction> LoadForecast::Predict(const RequestSize& size) const {
  if (!costs_.known()) return std::nullopt;
  const auto answer = [this](uint32_t max_answer) {
    return any_answer_ ? AnswerOf(max_answer) : 1.0;
  };
  const auto tenant = num_requests_.find(size.tenant);
  const Request request{.tenant = tenant != num_requests_.end() ? &tenant->first : &size.tenant,
                        .weight = std::max(size.weight, 1u),
                        .prompt_tokens = size.prompt_tokens,
                        .max_answer = size.max_answer,
                        .prompt_left = size.prompt_tokens};
  Run run(*this, &request, answer);
  for (size_t i = 0; i < kMostEvents && !run.last().ended; ++i) run.Next();
  const uint32_t rows = std::min(size.prompt_tokens, max_rows_);
  const double prompt = costs_.Step(0, std::max(rows, 1u)) *
                        std::max<double>(size.prompt_tokens, 1.0) / std::max(rows, 1u);
  const double tokens = std::min<double>(size.max_answer, answer(size.max_answer));
  return Prediction{.end = run.seconds(),
                    .alone = prompt + std::max(tokens - 1.0, 0.0) / pace_ * costs_.Step(1, 0),
                    .by_answers = any_answer_};
}

}  // namespace tandem::gateway

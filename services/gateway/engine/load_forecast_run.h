// The run ahead of time behind a forecast: of load_forecast.cc alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "services/gateway/engine/load_forecast.h"

namespace tandem::gateway {

// The load ahead of time.  Time passes in steps; fractions of steps are allowed.
class LoadForecast::Run {
 public:
  // An answer that is longer than expected goes on for so much of the expected length.
  static constexpr double kLeastLeft = 0.25;

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
        Wait(job);
      }
    }
    if (extra != nullptr) Wait(Add(*extra, answer(extra->max_answer)));
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

  int32_t PriorityOf(size_t job) const { return jobs_[job].request->priority; }
  // Behind those of its priority.
  void Wait(size_t job) {
    std::deque<size_t>& waiting = tenants_[jobs_[job].tenant].waiting;
    auto place = waiting.end();
    while (place != waiting.begin() && PriorityOf(job) < PriorityOf(*std::prev(place))) --place;
    waiting.insert(place, job);
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
      if (next == nullptr || Rank(share) < Rank(*next)) next = &share;
    }
    return next;
  }
  std::tuple<int32_t, double, size_t> Rank(const Share& share) const {
    return {PriorityOf(share.waiting.front()), Usage(share, 0), share.waiting.front()};
  }
  void StartNext(Share& share) {
    const size_t job = share.waiting.front();
    share.waiting.pop_front();
    Start(job);
  }
  static double Usage(const Share& share, int more) {
    return (static_cast<double>(share.running.size()) + more) / share.weight;
  }
  // Places go to those who wait with a lower priority number, and from a tenant over its share to
  // one below it.
  void Rebalance() {
    for (uint32_t i = 0; i < load_.places_; ++i) {
      Share* const next = NextShare();
      if (next == nullptr) return;
      const int32_t priority = PriorityOf(next->waiting.front());
      Share* from = nullptr;
      size_t victim = 0;
      for (Share& share : tenants_) {
        for (const size_t job : share.running) {
          const bool gives_way = PriorityOf(job) != priority ? PriorityOf(job) > priority
                                                             : Usage(share, 0) > Usage(*next, 1);
          if (!gives_way) continue;
          const auto rank = [&](const Share& s, size_t j) {
            return std::make_tuple(PriorityOf(j), Usage(s, 0), j);
          };
          if (from != nullptr && rank(share, job) < rank(*from, victim)) continue;
          from = &share;
          victim = job;
        }
      }
      if (from == nullptr) return;
      Stop(*from, victim);
      StartNext(*next);
    }
  }
  void Stop(Share& share, size_t index) {
    std::erase(share.running, index);
    Job& job = jobs_[index];
    ++job.starts;
    --num_running_;
    SetDecoding(job, false);
    Wait(index);
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

}  // namespace tandem::gateway

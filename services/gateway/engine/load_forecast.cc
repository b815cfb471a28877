#include "services/gateway/engine/load_forecast.h"

#include <algorithm>

#include "services/common/base/check.h"
#include "services/gateway/engine/load_forecast_run.h"

namespace tandem::gateway {
namespace {

constexpr double kAnswerShare = 1.0 / 16;  // of the latest answer in the averages
// Answers that ended by their limits do not say how long one with a much higher limit is.
constexpr double kMostStretch = 4.0;
// Assumed of an open answer before any has ended.
constexpr uint32_t kUnknownAnswer = 256;
// Ends after which a forecast stops: it is then a lower bound.
constexpr size_t kMostEvents = 20'000;

}  // namespace

void LoadForecast::Admitted(uint64_t id, const RequestSize& size) {
  const auto tenant = num_requests_.try_emplace(size.tenant, 0).first;
  ++tenant->second;
  requests_.emplace_hint(requests_.end(), id,
                         Request{.tenant = &tenant->first,
                                 .weight = std::max(size.weight, 1u),
                                 .priority = size.priority,
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
  const RequestSize size{*request.tenant, request.weight, request.priority, request.prompt_tokens,
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

std::optional<double> LoadForecast::Predict(const RequestSize& size) const {
  if (!costs_.known()) return std::nullopt;
  const auto tenant = num_requests_.find(size.tenant);
  const Request request{.tenant = tenant != num_requests_.end() ? &tenant->first : &size.tenant,
                        .weight = std::max(size.weight, 1u),
                        .priority = size.priority,
                        .prompt_tokens = size.prompt_tokens,
                        .max_answer = size.max_answer,
                        .prompt_left = size.prompt_tokens};
  Run run(*this, &request,
          [this](uint32_t max_answer) { return any_answer_ ? AnswerOf(max_answer) : 1.0; });
  for (size_t i = 0; i < kMostEvents && !run.last().ended; ++i) run.Next();
  return run.seconds();
}

std::optional<double> LoadForecast::PredictAlone(const RequestSize& size) const {
  if (!costs_.known()) return std::nullopt;
  const uint32_t rows = std::max(std::min(size.prompt_tokens, max_rows_), 1u);
  const double prompt = costs_.Step(0, rows) * std::max(size.prompt_tokens, 1u) / rows;
  const double answer = any_answer_ ? AnswerOf(size.max_answer) : 1.0;
  const double tokens = std::min<double>(size.max_answer, answer);
  return prompt + std::max(tokens - 1.0, 0.0) / pace_ * costs_.Step(1, 0);
}

}  // namespace tandem::gateway

#include "services/gateway/api/answer_text.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway {

bool AnswerText::IsStopToken(uint32_t token) const {
  if (ignore_eos_) return false;
  const std::vector<int32_t>& stops = model_.config().stop_token_ids;
  return std::find(stops.begin(), stops.end(), static_cast<int64_t>(token)) != stops.end();
}

std::vector<Decision> AnswerText::Append(const StreamUpdate& update) {
  text_ += update.text;
  for (const Decision& decision : update.tokens) {
    if (!IsStopToken(decision.token)) held_.push_back(decision);
  }
  std::vector<Decision> covered;
  while (!held_.empty() && covered_bytes_ + BytesOf(held_.front()).size() <= text_.size()) {
    covered_bytes_ += BytesOf(held_.front()).size();
    covered.push_back(std::move(held_.front()));
    held_.pop_front();
  }
  return covered;
}

std::vector<Decision> AnswerText::Finish(v1::FinishReason reason) {
  std::vector<Decision> rest;
  for (; !held_.empty(); held_.pop_front()) {
    const bool after_the_end = covered_bytes_ >= text_.size();
    if (reason == v1::FINISH_REASON_STOP && after_the_end) break;
    covered_bytes_ += BytesOf(held_.front()).size();
    rest.push_back(std::move(held_.front()));
  }
  held_.clear();
  return rest;
}

}  // namespace tandem::gateway

// The text of one run, with the tokens that it came from.
//
// The engine reports tokens when they are decided.  It reports text later: as whole characters that
// cannot belong to a stop text.  Clients expect, with each piece of text, the log-probabilities of
// exactly its tokens, and none for tokens after the end of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "services/gateway/engine/token_stream.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// Single-thread, one per run.
class AnswerText {
 public:
  // `model`: Borrowed; must outlive this.  `ignore_eos`: stop tokens count as ordinary tokens.
  AnswerText(const ServedModel& model, bool ignore_eos) : model_(model), ignore_eos_(ignore_eos) {}

  // Takes an update and returns the tokens that the text so far covers.
  std::vector<Decision> Append(const StreamUpdate& update);
  // The remaining tokens, without those after a stop.
  std::vector<Decision> Finish(v1::FinishReason reason);

  const std::string& text() const { return text_; }

 private:
  std::string_view BytesOf(const Decision& decision) const {
    return model_.tokenizer().TokenBytes(decision.token);
  }
  bool IsStopToken(uint32_t token) const;

  const ServedModel& model_;
  const bool ignore_eos_;
  std::string text_;
  std::deque<Decision> held_;
  size_t covered_bytes_ = 0;  // of the tokens returned
};

}  // namespace tandem::gateway

// Questions with exact answers (tools/demo_model/make_eval_set.py).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/gateway/tokenizer/chat_template.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::evaluation {

struct Item {
  std::string kind;
  std::vector<gateway::Message> messages;
  std::string expected;
};

// Items of a JSON-lines file, in its order: kinds take turns.
absl::StatusOr<std::vector<Item>> ReadEvaluationSet(const std::string& path);

// The tokens of each item's conversation, ready for the answer.
absl::StatusOr<std::vector<std::vector<uint32_t>>> RenderPrompts(
    const gateway::Tokenizer& tokenizer, const ModelConfig& config, const std::vector<Item>& items);

}  // namespace tandem::evaluation

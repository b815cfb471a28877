// Answers as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/tandem/commands/answer.h"

namespace tandem {

// One object: text, finish_reason, tokens (if probabilities were requested), usage, placement,
// request_id.
nlohmann::ordered_json AnswerAsJson(const Answer& answer);

// With a line feed at the end; indent -1 is one line.  Bytes that are not UTF-8, half a character
// in a token, become U+FFFD.
std::string PrintJson(const nlohmann::ordered_json& json, int indent);

}  // namespace tandem

// One prompt or many, each a text or token ids: "prompt" of completions, "input" of embeddings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/gateway/api/json_fields.h"

namespace tandem::gateway {

inline bool IsTokens(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

// One prompt, a text or token ids.  Message: v1::GenerateRequest or v1::EmbedInput.
template <class Message>
void ReadPrompt(JsonFields& fields, const std::string& name, const Json& value, Message& message) {
  if (value.is_string()) {
    message.set_text(value.get<std::string>());
    return;
  }
  for (const Json& id : value) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX) {
      return fields.Fail(name, "invalid_type",
                         absl::StrFormat("Invalid '%s': token ids are whole numbers of 32 bits.",
                                         fields.PathOf(name)));
    }
    message.mutable_tokens()->add_ids(id.get<uint32_t>());
  }
}

// The member `name`, of `most` prompts at most.
template <class Message>
std::vector<Message> ReadPrompts(JsonFields& fields, const std::string& name, size_t most) {
  std::vector<Message> messages;
  const Json* prompt = fields.Find(name);
  if (prompt == nullptr) {
    fields.Missing(name);
  } else if (prompt->is_string() || IsTokens(*prompt)) {
    ReadPrompt(fields, name, *prompt, messages.emplace_back());
  } else if (!prompt->is_array() || prompt->empty()) {
    fields.WrongType(name, "a string, an array of strings or of token ids, not empty");
  } else if (prompt->size() > most) {
    fields.Fail(name, "array_above_max_length",
                absl::StrFormat("Invalid '%s': %d of them, at most %d in one request.", name,
                                prompt->size(), most));
  } else {
    for (size_t i = 0; i < prompt->size(); ++i) {
      const Json& element = (*prompt)[i];
      const std::string at = absl::StrFormat("%s[%d]", name, i);
      if (!element.is_string() && !IsTokens(element)) {
        fields.Fail(name, "invalid_type",
                    absl::StrFormat("Invalid type for '%s': expected a string or an array "
                                    "of token ids, but got %s instead.",
                                    at, std::string(JsonTypeName(element))));
        break;
      }
      ReadPrompt(fields, at, element, messages.emplace_back());
    }
  }
  return messages;
}

}  // namespace tandem::gateway

// Tools, calls and results as FunctionGemma reads them.
//
// Strings stand between <escape> tokens, keys in alphabetical order, types in capitals:
//   declaration:roll{description:<escape>Rolls.<escape>,parameters:{properties:{n:{...}},
//   required:[<escape>n<escape>],type:<escape>OBJECT<escape>}}
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "services/gateway/tokenizer/chat_template.h"

namespace tandem::gateway {

// All append to `message`, markers as control tokens.

// {"name", "description", "parameters"}.
void AppendDeclaration(const nlohmann::ordered_json& function, Message& message);
// Arguments that are no JSON object, as those of a call that broke off, are one string.
void AppendCall(std::string_view name, std::string_view arguments_json, Message& message);
// A result that is no JSON object is the member "value".
void AppendResponse(std::string_view name, std::string_view result, Message& message);

}  // namespace tandem::gateway

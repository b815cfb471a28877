// What OpenAI's requests say about the form of an answer, with the members that clients of vLLM and
// llama.cpp send for it.
#pragma once

#include <string_view>

#include "services/gateway/api/constraint_member.h"
#include "services/gateway/api/json_fields.h"

namespace tandem::gateway {

// Of chats and completions: response_format, and the members of other servers: guided_json,
// guided_regex, guided_choice, guided_grammar, structured_outputs (vLLM), grammar, json_schema
// (llama.cpp).  A second one is an error that names both.
ConstraintMember ReadAnswerFormat(JsonFields& fields);

// Of responses: text.format, and the same members of other servers.
ConstraintMember ReadTextFormat(JsonFields& fields);

// Whether vLLM takes a grammar for Lark's: no line of it, without its comment, has "::=".
bool IsLarkGrammar(std::string_view grammar);

}  // namespace tandem::gateway

// OpenAI's messages to conversations.
#pragma once

#include <string>

#include "services/gateway/api/json_fields.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Appends `messages` (an array of objects) to `request`.  Content is a string or a list of text
// parts; "developer" is taken for "system".  What is no text (images, sound, files, tool calls and
// their results) is refused by its path, "messages[2].content[0].type".
void ReadMessages(JsonFields& fields, const std::string& name, v1::ChatRequest& request);

// The text of a message's content, in parts of any of `part_types`.
std::string ReadContent(JsonFields& message, std::initializer_list<std::string_view> part_types);

}  // namespace tandem::gateway

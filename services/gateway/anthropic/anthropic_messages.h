// Anthropic's system texts, messages and tools to a conversation.
#pragma once

#include <cstddef>
#include <vector>

#include "services/gateway/api/json_fields.h"
#include "services/gateway/picture/fetch_rules.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// "system", "messages", "tools" and "tool_choice" of a body.  Content is a text or a list of blocks:
// text, the assistant's tool_use, the user's tool_result.  Other blocks and tools that the server
// would run are refused.  `places[i]`: the position in "messages" of what the request's message i
// comes from.  `urls`: as in AddImageUrl.
void ReadConversation(JsonFields& fields, PictureUrls& urls, v1::ChatRequest& request,
                      std::vector<size_t>& places);

}  // namespace tandem::gateway

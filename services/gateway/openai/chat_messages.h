// OpenAI's messages to conversations.
#pragma once

#include <string>

#include "services/gateway/api/json_fields.h"
#include "services/gateway/picture/fetch_rules.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Appends `messages` (an array of objects) to `request`.  Content is a string or a list of text
// parts, and of a user pictures; "developer" means "system".  Other content (sound, files) is refused,
// named by its path: "messages[2].content[0].type".  `urls`: as in AddImageUrl.
void ReadMessages(JsonFields& fields, const std::string& name, PictureUrls& urls,
                  v1::ChatRequest& request);

// Appends the message `element`, whose name is `at` ("messages[2]").
void ReadMessage(JsonFields& fields, const std::string& at, const Json& element, PictureUrls& urls,
                 v1::ChatRequest& request);

// The element `at` of an array if it is an object; otherwise null, with an error.
const Json* ObjectAt(JsonFields& fields, const std::string& at, const Json& element);

// Takes the pictures among a content's parts, as image_url of chats or input_image of responses.
struct ImageParts {
  v1::ChatMessage* message = nullptr;  // null: they are refused
  PictureUrls* urls = nullptr;         // not null where `message` is not
};

// The text of a message's content: a string, or parts of one of `part_types`.
std::string ReadContent(JsonFields& message, std::initializer_list<std::string_view> part_types,
                        const std::string& name = "content", ImageParts images = {});

}  // namespace tandem::gateway

// Pictures in JSON: base64 and data: URLs.
#pragma once

#include <string>
#include <string_view>

#include "services/gateway/api/json_fields.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

inline constexpr size_t kMaxImages = 64;  // of a message

// Adds a picture behind the message's content so far.  `text`: base64, or a data: URL of it.  Errors
// name `name`: no base64, more than kMaxImages.
void AddImageData(JsonFields& fields, std::string_view name, std::string_view text,
                  size_t content_offset, v1::ChatMessage& message);
// The same of a URL.  Those that are no data: URLs are refused: nothing is fetched.
void AddImageUrl(JsonFields& fields, std::string_view name, std::string_view url,
                 size_t content_offset, v1::ChatMessage& message);

}  // namespace tandem::gateway

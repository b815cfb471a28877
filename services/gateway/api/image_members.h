// Pictures in JSON: base64 and data: URLs.
#pragma once

#include <string>
#include <string_view>

#include "services/gateway/api/json_fields.h"
#include "services/gateway/model/served_model.h"
#include "services/gateway/picture/fetch_rules.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

inline constexpr size_t kMaxImages = 64;  // of a message

// Adds a picture behind the message's content so far.  `text`: base64, or a data: URL of it.  Errors
// name `name`: no base64, more than kMaxImages.
void AddImageData(JsonFields& fields, std::string_view name, std::string_view text,
                  size_t content_offset, v1::ChatMessage& message);
// The same of a URL.  Of one that `urls` allows, the picture's data is the URL, which is among
// urls.checked then (ParseChatWithUrls); others are refused unless they are data: URLs.
void AddImageUrl(JsonFields& fields, std::string_view name, const std::string& url,
                 size_t content_offset, PictureUrls& urls, v1::ChatMessage& message);
// From where pictures of a request to `model` may be fetched.
PictureUrls PictureUrlsOf(const ServedModel& model);

}  // namespace tandem::gateway

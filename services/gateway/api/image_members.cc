#include "services/gateway/api/image_members.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"

namespace tandem::gateway {
namespace {

constexpr std::string_view kData = "data:";
constexpr std::string_view kBase64 = ";base64";
constexpr size_t kMaxHeader = 256;

// Cuts the head off a data: URL of base64, up to the comma; false: `text` is another URL or text.
bool TakeDataUrl(std::string_view& text) {
  const size_t comma = text.substr(0, kMaxHeader).find(',');
  if (comma == text.npos) return false;
  const std::string header = absl::AsciiStrToLower(std::string(text.substr(0, comma)));
  if (!header.starts_with(kData) || !header.ends_with(kBase64)) return false;
  text.remove_prefix(comma + 1);
  return true;
}

// The message's next picture; null, with an error: it has too many.
v1::Image* AddImage(JsonFields& fields, std::string_view name, size_t content_offset,
                    v1::ChatMessage& message) {
  if (message.images_size() >= static_cast<int>(kMaxImages)) {
    fields.Fail(name, "invalid_value",
                absl::StrFormat("Invalid '%s': a message has at most %d images.",
                                fields.PathOf(name), kMaxImages));
    return nullptr;
  }
  v1::Image* image = message.add_images();
  image->set_content_offset(static_cast<uint32_t>(content_offset));
  return image;
}

void AddBase64(JsonFields& fields, std::string_view name, std::string_view text,
               size_t content_offset, v1::ChatMessage& message) {
  std::string data;
  if (text.empty() || !absl::Base64Unescape(absl::string_view(text.data(), text.size()), &data)) {
    return fields.Fail(
        name, "invalid_value",
        absl::StrFormat("Invalid '%s': expected a picture as base64.", fields.PathOf(name)));
  }
  v1::Image* image = AddImage(fields, name, content_offset, message);
  if (image != nullptr) image->set_data(std::move(data));
}

void AddUrl(JsonFields& fields, std::string_view name, const std::string& url,
            size_t content_offset, PictureUrls& urls, v1::ChatMessage& message) {
  if (urls.rules == nullptr) {
    return fields.Unsupported(
        name, absl::StrFormat("\"%s\": this server fetches no images (--fetch-images is not set); "
                              "send the picture itself as data:image/png;base64,...",
                              ClientText(url, 40)));
  }
  auto checked = urls.rules->Check(url);
  if (!checked.ok()) {
    return fields.Unsupported(
        name, absl::StrFormat("\"%s\": %s; or send the picture itself as "
                              "data:image/png;base64,...",
                              ClientText(url, 40), std::string(checked.status().message())));
  }
  v1::Image* image = AddImage(fields, name, content_offset, message);
  if (image == nullptr) return;
  image->set_data(checked->url);
  urls.checked.insert(std::move(checked->url));
}

}  // namespace

PictureUrls PictureUrlsOf(const ServedModel& model) {
  const PictureFetcher* fetcher =
      model.pictures() == nullptr ? nullptr : model.pictures()->fetcher();
  return {.rules = fetcher == nullptr ? nullptr : &fetcher->rules(), .checked = {}};
}

void AddImageData(JsonFields& fields, std::string_view name, std::string_view text,
                  size_t content_offset, v1::ChatMessage& message) {
  TakeDataUrl(text);
  AddBase64(fields, name, text, content_offset, message);
}

void AddImageUrl(JsonFields& fields, std::string_view name, const std::string& url,
                 size_t content_offset, PictureUrls& urls, v1::ChatMessage& message) {
  if (absl::AsciiStrToLower(url.substr(0, kData.size())) != kData) {
    return AddUrl(fields, name, url, content_offset, urls, message);
  }
  std::string_view text = url;
  if (!TakeDataUrl(text)) {
    return fields.Fail(name, "invalid_value",
                       absl::StrFormat("Invalid '%s': expected data:image/png;base64,... with a "
                                       "picture as base64.",
                                       fields.PathOf(name)));
  }
  AddBase64(fields, name, text, content_offset, message);
}

}  // namespace tandem::gateway

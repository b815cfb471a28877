#include "services/gateway/api/json.h"

#include "absl/strings/str_format.h"
#include "services/common/json/guarded_json.h"
#include "services/gateway/api/api_error.h"

namespace tandem::gateway {
namespace {

absl::Status InvalidJson(const std::string& why) {
  return ParamError("", "invalid_json", absl::StrFormat("the body is not valid JSON: %s", why));
}

}  // namespace

absl::StatusOr<Json> ParseJsonObject(std::string_view text) {
  auto json = ParseGuardedJson(text);
  if (absl::IsCancelled(json.status())) return json.status();
  if (!json.ok()) return InvalidJson(std::string(json.status().message()));
  if (json->is_object()) return json;
  return InvalidJson(
      absl::StrFormat("an object is expected, not %s", std::string(JsonTypeName(*json))));
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string DumpJsonMembers(const Json& object) {
  const std::string text = DumpJson(object);
  return text.substr(1, text.size() - 2);
}

std::string_view JsonTypeName(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    default:
      return "a number";
  }
}

}  // namespace tandem::gateway

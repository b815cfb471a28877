#include "services/gateway/tool_calls/spaced_json.h"

#include "services/common/json/guarded_json.h"

namespace tandem::gateway {
namespace {

using OrderedJson = nlohmann::ordered_json;

void AppendSpaced(const OrderedJson& json, std::string& out) {
  const auto scalar = [&out](const OrderedJson& value) {
    out += value.dump(-1, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace);
  };
  if (!json.is_structured()) return scalar(json);
  out += json.is_object() ? '{' : '[';
  const char* before = "";
  for (auto it = json.begin(); it != json.end(); ++it) {
    out += before;
    before = ", ";
    if (json.is_object()) {
      scalar(it.key());
      out += ": ";
    }
    AppendSpaced(*it, out);
  }
  out += json.is_object() ? '}' : ']';
}

}  // namespace

std::string SpacedJson(const OrderedJson& json) {
  std::string out;
  AppendSpaced(json, out);
  return out;
}

std::optional<std::string> AsSpacedJson(std::string_view text) {
  const auto json = ParseGuardedJson(text);
  if (!json.ok()) return std::nullopt;
  return SpacedJson(*json);
}

}  // namespace tandem::gateway

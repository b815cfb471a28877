#include "services/common/base/json_floats.h"

#include <charconv>

namespace tandem {

std::string FloatsToJson(std::span<const float> values) {
  std::string json = "[";
  for (const float value : values) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    if (json.size() > 1) json.push_back(',');
    json.append(digits, end);
  }
  json.push_back(']');
  return json;
}

}  // namespace tandem

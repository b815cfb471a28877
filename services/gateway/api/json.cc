#include "services/gateway/api/json.h"

#include "absl/strings/str_format.h"
#include "services/gateway/api/api_error.h"

namespace tandem::gateway {
namespace {

absl::Status InvalidJson(const std::string& why) {
  return ParamError("", "invalid_json", absl::StrFormat("the body is not valid JSON: %s", why));
}

// Walks the text once without keeping anything, so that what is too deep or too much is refused
// before a tree of it exists.
class JsonChecker : public nlohmann::json_sax<Json> {
 public:
  const absl::Status& status() const { return status_; }

  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(number_integer_t) override { return Count(); }
  bool number_unsigned(number_unsigned_t) override { return Count(); }
  bool number_float(number_float_t, const string_t&) override { return Count(); }
  bool string(string_t&) override { return Count(); }
  bool binary(binary_t&) override { return Count(); }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return Enter(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::json::exception& error) override {
    // The library's text goes "[json.exception...] parse error at line ...: syntax error while
    // parsing value - unexpected ...; last read: ...".
    std::string why = error.what();
    for (const char* before : {"] ", ": ", " - "}) {
      const size_t at = why.find(before);
      if (at != std::string::npos) why = why.substr(at + std::string_view(before).size());
    }
    if (why.size() > 200) why.resize(200);
    status_ = InvalidJson(absl::StrFormat("at byte %d, %s", byte, why));
    return false;
  }

 private:
  bool Count() {
    if (++num_values_ <= kMaxJsonValues) return true;
    status_ = InvalidJson(absl::StrFormat("it has more than %d values", kMaxJsonValues));
    return false;
  }
  bool Enter() {
    if (++depth_ > kMaxJsonDepth) {
      status_ = InvalidJson(absl::StrFormat("it is nested deeper than %d levels", kMaxJsonDepth));
      return false;
    }
    return Count();
  }
  bool Leave() {
    --depth_;
    return true;
  }

  absl::Status status_;
  size_t depth_ = 0;
  size_t num_values_ = 0;
};

}  // namespace

absl::StatusOr<Json> ParseJsonObject(std::string_view text) {
  JsonChecker checker;
  if (!Json::sax_parse(text, &checker)) return checker.status();
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return InvalidJson(
      absl::StrFormat("an object is expected, not %s", std::string(JsonTypeName(json))));
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
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

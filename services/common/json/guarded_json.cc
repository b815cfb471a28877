#include "services/common/json/guarded_json.h"

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/cancellation.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kStepsBetweenChecks = 1 << 14;
constexpr size_t kFewMembers = 8;

absl::Status Refused(size_t at, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrFormat("at byte %d, %s", at, why));
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The code unit of the escape at `at` ("\uXXXX"), if it is one.
std::optional<uint32_t> CodeUnit(std::string_view json, size_t at) {
  if (at + 6 > json.size() || json[at] != '\\' || json[at + 1] != 'u') return std::nullopt;
  uint32_t unit = 0;
  for (size_t i = at + 2; i < at + 6; ++i) {
    const int digit = HexDigit(json[i]);
    if (digit < 0) return std::nullopt;
    unit = unit << 4 | static_cast<uint32_t>(digit);
  }
  return unit;
}

bool IsHigh(std::optional<uint32_t> unit) { return unit && *unit >= 0xD800 && *unit < 0xDC00; }
bool IsLow(std::optional<uint32_t> unit) { return unit && *unit >= 0xDC00 && *unit < 0xE000; }

// What the brackets and commas outside of strings amount to.
class Counter {
 public:
  explicit Counter(const JsonLimits& limits) : limits_(limits) {}

  absl::Status Open(char bracket, size_t at) {
    if (members_.size() >= limits_.max_depth) {
      return Refused(at, absl::StrFormat("it is nested deeper than %d levels", limits_.max_depth));
    }
    if (++num_containers_ > limits_.max_containers) {
      return Refused(
          at, absl::StrFormat("it has more than %d objects and arrays", limits_.max_containers));
    }
    members_.push_back(bracket == '{' ? 1 : 0);
    return Value(at);
  }
  void Close() {
    if (!members_.empty()) members_.pop_back();
  }
  absl::Status String(size_t at) {
    if (++num_strings_ <= limits_.max_strings) return absl::OkStatus();
    return Refused(at, absl::StrFormat("it has more than %d texts and names", limits_.max_strings));
  }
  absl::Status Comma(size_t at) {
    if (!members_.empty() && members_.back() > 0 && ++members_.back() > limits_.max_members) {
      return Refused(at,
                     absl::StrFormat("an object has more than %d members", limits_.max_members));
    }
    return Value(at);
  }

 private:
  absl::Status Value(size_t at) {
    if (++num_values_ <= limits_.max_values) return absl::OkStatus();
    return Refused(at, absl::StrFormat("it has more than %d values", limits_.max_values));
  }

  const JsonLimits& limits_;
  std::vector<size_t> members_;  // of the objects that are open; 0 for an array
  size_t num_containers_ = 0;
  size_t num_strings_ = 0;
  size_t num_values_ = 0;
};

// Builds the document.  A member is added without a look for others of its name; where there are
// any, they are found once, at the object's end.
class Builder : public nlohmann::json_sax<Json> {
 public:
  absl::Status status() const { return status_; }
  Json Take() { return std::move(root_); }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override {
    KeepLast(stack_.back()->get_ref<Json::object_t&>());
    stack_.pop_back();
    return true;
  }
  bool end_array() override {
    stack_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    Members& members = stack_.back()->get_ref<Json::object_t&>();
    members.emplace_back(std::move(name), nullptr);
    member_ = &members.back().second;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::json::exception& error) override {
    // The library's text goes "[json.exception...] parse error at line ...: syntax error while
    // parsing value - unexpected ...; last read: ...".
    std::string_view why = error.what();
    for (const std::string_view before : {"] ", ": ", " - "}) {
      const size_t at = why.find(before);
      if (at != std::string_view::npos) why.remove_prefix(at + before.size());
    }
    status_ = Refused(byte, FitMessage(why, 200));
    return false;
  }

 private:
  using Members = std::vector<std::pair<const std::string, Json>>;

  static void KeepLast(Json::object_t& object) {
    Members& members = object;
    if (members.size() <= kFewMembers && !HasTwoOfOneName(members)) return;
    std::unordered_map<std::string_view, size_t> first;
    std::vector<size_t> places(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      places[i] = first.try_emplace(members[i].first, i).first->second;
    }
    if (first.size() == members.size()) return;
    for (size_t i = 0; i < members.size(); ++i) {
      if (places[i] != i) members[places[i]].second = std::move(members[i].second);
    }
    Members kept;
    kept.reserve(first.size());
    for (size_t i = 0; i < members.size(); ++i) {
      if (places[i] == i) kept.emplace_back(members[i].first, std::move(members[i].second));
    }
    members.swap(kept);
  }

  // Without the memory that a table takes.  Time O(members^2).
  static bool HasTwoOfOneName(const Members& members) {
    for (size_t i = 1; i < members.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (members[k].first == members[i].first) return true;
      }
    }
    return false;
  }

  Json* Place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (stack_.back()->is_array()) {
      auto& elements = stack_.back()->get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      return &elements.back();
    }
    *member_ = std::move(value);
    return member_;
  }
  bool Put(Json value) {
    Place(std::move(value));
    if (++num_steps_ % kStepsBetweenChecks != 0) return true;
    status_ = CheckCancelled();
    return status_.ok();
  }
  bool Open(Json container) {
    // A container stays where it is while it is on the stack: only the innermost one grows.
    stack_.push_back(Place(std::move(container)));
    return true;
  }

  absl::Status status_;
  Json root_;
  std::vector<Json*> stack_;
  Json* member_ = nullptr;
  size_t num_steps_ = 0;
};

}  // namespace

absl::Status CheckJson(std::string_view json, const JsonLimits& limits) {
  if (const auto bad = FindInvalidUtf8(json)) return Refused(*bad, "it is not UTF-8");
  Counter counter(limits);
  bool in_string = false;
  size_t next_check = kStepsBetweenChecks;
  for (size_t i = 0; i < json.size(); ++i) {
    if (i >= next_check) {
      TANDEM_RETURN_IF_ERROR(CheckCancelled());
      next_check = i + kStepsBetweenChecks;
    }
    const char c = json[i];
    if (in_string) {
      if (c == '"') in_string = false;
      if (c != '\\') continue;
      const auto unit = CodeUnit(json, i);
      const bool pair = IsHigh(unit) && IsLow(CodeUnit(json, i + 6));
      if (!pair && (IsHigh(unit) || IsLow(unit))) {
        return Refused(i, "the escape is half a surrogate pair");
      }
      i += pair ? 11 : 1;
    } else if (c == '"') {
      TANDEM_RETURN_IF_ERROR(counter.String(i));
      in_string = true;
    } else if (c == '{' || c == '[') {
      TANDEM_RETURN_IF_ERROR(counter.Open(c, i));
    } else if (c == '}' || c == ']') {
      counter.Close();
    } else if (c == ',') {
      TANDEM_RETURN_IF_ERROR(counter.Comma(i));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> ParseGuardedJson(std::string_view text, const JsonLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckJson(text, limits));
  Builder builder;
  const bool parsed = Json::sax_parse(text, &builder);
  TANDEM_RETURN_IF_ERROR(builder.status());
  if (!parsed) return absl::InvalidArgumentError("at byte 0, there is no document");
  return builder.Take();
}

}  // namespace tandem

#include "services/loader/formats/json.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/byte_source.h"
#include "services/loader/formats/printable.h"

namespace tandem::loader {
namespace {

using nlohmann::json;

// Builds the document and remembers the first error.  The library reports its own through
// parse_error; false from any callback stops it.
class DocumentBuilder {
 public:
  explicit DocumentBuilder(std::string_view text) : begin_(text.data()) {}

  // Where the parser's iterator stands, for the offsets of our own errors.
  const char** position() { return &position_; }
  absl::Status status() const { return status_; }
  json Take() { return std::move(root_); }

  bool null() { return Put(nullptr); }
  bool boolean(bool value) { return Put(value); }
  bool number_integer(json::number_integer_t value) { return Put(value); }
  bool number_unsigned(json::number_unsigned_t value) { return Put(value); }
  bool number_float(json::number_float_t value, const std::string&) { return Put(value); }
  bool string(std::string& value) { return Put(std::move(value)); }
  bool binary(json::binary_t&) { return Fail("binary value"); }
  bool start_object(size_t) { return Open(json::object()); }
  bool start_array(size_t) { return Open(json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(std::string& name) {
    const auto [member, inserted] = stack_.back()->emplace(name, nullptr);
    if (!inserted)
      return Fail(absl::StrFormat("the name \"%s\" appears twice", name.substr(0, 80)));
    member_ = &*member;
    return true;
  }

  bool parse_error(size_t offset, const std::string&, const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..." -> "..."
    const std::string_view what = error.what();
    const size_t start = what.find(": ");
    status_ = FormatError(offset == 0 ? 0 : offset - 1,
                          what.substr(start == std::string_view::npos ? 0 : start + 2, 200));
    return false;
  }

 private:
  bool Fail(const std::string& reason) {
    status_ = FormatError(static_cast<uint64_t>(position_ - begin_), reason);
    return false;
  }

  json* Place(json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (stack_.back()->is_array()) {
      stack_.back()->push_back(std::move(value));
      return &stack_.back()->back();
    }
    *member_ = std::move(value);
    return member_;
  }

  bool CountValue() {
    if (++num_values_ <= kMaxJsonValues) return true;
    return Fail(absl::StrFormat("more than %d values", kMaxJsonValues));
  }

  bool Put(json value) {
    if (!CountValue()) return false;
    Place(std::move(value));
    return true;
  }

  bool Open(json container) {
    if (!CountValue()) return false;
    if (stack_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      return Fail(absl::StrFormat("nested deeper than %d levels", kMaxJsonDepth));
    }
    // A container stays where it is while it is on the stack: only the innermost one grows.
    stack_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    stack_.pop_back();
    return true;
  }

  const char* begin_;
  const char* position_ = begin_;
  json root_;
  std::vector<json*> stack_;
  json* member_ = nullptr;
  uint64_t num_values_ = 0;
  absl::Status status_;
};

// A forward iterator over text that tells the builder how far the parser has read.
class TrackingIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackingIterator(const char* at, const char** position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  TrackingIterator& operator++() {
    *position_ = at_++;
    return *this;
  }
  TrackingIterator operator++(int) {
    TrackingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const TrackingIterator& a, const TrackingIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  const char** position_;
};

absl::Status WrongType(std::string_view name, const json& value, std::string_view expected) {
  return absl::InvalidArgumentError(absl::StrFormat("%s is %s, expected %s", std::string(name),
                                                    PrintJson(value, 60), std::string(expected)));
}

}  // namespace

absl::StatusOr<json> ParseJson(std::string_view text) {
  DocumentBuilder builder(text);
  const TrackingIterator begin(text.data(), builder.position());
  const TrackingIterator end(text.data() + text.size(), builder.position());
  const bool parsed = json::sax_parse(begin, end, &builder);
  TANDEM_RETURN_IF_ERROR(builder.status());
  if (!parsed) return absl::InvalidArgumentError("no JSON document");
  return builder.Take();
}

const json* JsonMember(const json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(name));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<std::optional<int64_t>> JsonInteger(const json& object, std::string_view name,
                                                   int64_t min, int64_t max) {
  const json* value = JsonMember(object, name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = absl::StrFormat("an integer in [%d, %d]", min, max);
  int64_t number = 0;
  if (value->is_number_unsigned()) {
    if (value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return WrongType(name, *value, expected);
    }
    number = static_cast<int64_t>(value->get<uint64_t>());
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else if (value->is_number_float() && std::abs(value->get<double>()) < 9e15 &&
             std::trunc(value->get<double>()) == value->get<double>()) {
    number = static_cast<int64_t>(value->get<double>());  // "1000000.0"
  } else {
    return WrongType(name, *value, expected);
  }
  if (number < min || number > max) return WrongType(name, *value, expected);
  return number;
}

absl::StatusOr<std::optional<float>> JsonFloat(const json& object, std::string_view name) {
  const json* value = JsonMember(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return WrongType(name, *value, "a number");
  const double number = value->get<double>();
  if (!(std::abs(number) <= 3.0e38)) return WrongType(name, *value, "a finite float");
  return static_cast<float>(number);
}

absl::StatusOr<std::optional<bool>> JsonBool(const json& object, std::string_view name) {
  const json* value = JsonMember(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return WrongType(name, *value, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::optional<std::string>> JsonString(const json& object, std::string_view name) {
  const json* value = JsonMember(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return WrongType(name, *value, "a string");
  return value->get<std::string>();
}

absl::StatusOr<const json*> JsonObject(const json& object, std::string_view name) {
  const json* value = JsonMember(object, name);
  if (value != nullptr && !value->is_object()) return WrongType(name, *value, "an object");
  return value;
}

std::string PrintJson(const json& value, size_t max_length) {
  // Depth is bounded by ParseJson, so dump's recursion is too.
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return Printable(text, max_length);
}

}  // namespace tandem::loader

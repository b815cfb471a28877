// Path templates of google.api.http (google/api/http.proto).
//
//   Template  = "/" Segments [ Verb ] ;
//   Segments  = Segment { "/" Segment } ;
//   Segment   = "*" | "**" | LITERAL | Variable ;
//   Variable  = "{" FieldPath [ "=" Segments ] "}" ;
//   FieldPath = IDENT { "." IDENT } ;
//   Verb      = ":" LITERAL ;
//
// `*` matches one segment that is not empty, `**` any number of segments, and only at the end;
// {v} is {v=*}.  Also taken: "/" alone.
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::gateway {

// A value, thread-compatible.
class PathTemplate {
 public:
  struct Variable {
    std::string field_path;  // "model", "sampling.seed"
    size_t begin = 0;        // its first segment
    size_t end = 0;          // past its last one
    bool multi_segment = false;
  };
  // Field path and value, in the order of the template.
  using Bindings = std::vector<std::pair<std::string, std::string>>;

  // INVALID_ARGUMENT says where the syntax is wrong.
  static absl::StatusOr<PathTemplate> Parse(std::string_view text);

  // `path`: as sent, percent-encoded, valid (IsValidPath).  Values of variables of one segment are
  // decoded; in those of several, "%2F" stays as it is, so that no slash is made up.
  std::optional<Bindings> Match(std::string_view path) const;

  const std::vector<Variable>& variables() const { return variables_; }
  // The template without variables' names: "/v1/models/*:generate".
  std::string Shape() const;
  // Less: to be tried first.  Literals come before `*`, `*` before `**`, a verb before none.
  // Equal: both match the same paths.
  std::strong_ordering operator<=>(const PathTemplate& other) const;
  bool operator==(const PathTemplate& other) const { return std::is_eq(*this <=> other); }

 private:
  friend class PathTemplateParser;
  enum class Kind { kEnd, kLiteral, kOne, kMany };
  struct Segment {
    Kind kind = Kind::kLiteral;
    std::string literal;
    auto operator<=>(const Segment&) const = default;
  };
  std::vector<Segment> segments_;
  std::string verb_;
  std::vector<Variable> variables_;
};

// Whether `path` begins with '/' and every '%' is followed by two hexadecimal digits.
bool IsValidPath(std::string_view path);
// Decodes "%41" to "A"; other text stays.  `keep_slash`: "%2F" stays too.
std::string PercentDecode(std::string_view text, bool keep_slash = false);

}  // namespace tandem::gateway

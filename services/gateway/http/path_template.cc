#include "services/gateway/http/path_template.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/http/hex_digit.h"

namespace tandem::gateway {
namespace {

bool IsEscape(std::string_view text, size_t at) {
  return text[at] == '%' && at + 2 < text.size() && HexValue(text[at + 1]) >= 0 &&
         HexValue(text[at + 2]) >= 0;
}

std::vector<std::string_view> SplitSegments(std::string_view path) {
  std::vector<std::string_view> segments;
  path.remove_prefix(1);
  while (true) {
    const size_t slash = path.find('/');
    segments.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return segments;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

bool IsValidPath(std::string_view path) {
  if (path.empty() || path[0] != '/') return false;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '%' && !IsEscape(path, i)) return false;
  }
  return true;
}

std::string PercentDecode(std::string_view text, bool keep_slash) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (!IsEscape(text, i)) {
      out.push_back(text[i]);
      continue;
    }
    const char c = static_cast<char>(HexValue(text[i + 1]) << 4 | HexValue(text[i + 2]));
    if (c == '/' && keep_slash) {
      out.append(text.substr(i, 3));
    } else {
      out.push_back(c);
    }
    i += 2;
  }
  return out;
}

// Recursive descent over the grammar; variables do not nest.
class PathTemplateParser {
 public:
  explicit PathTemplateParser(std::string_view text) : text_(text) {}

  absl::StatusOr<PathTemplate> Parse() {
    if (!Take('/')) return Error("'/' expected");
    if (at_ == text_.size()) {
      result_.segments_.push_back({});
      return std::move(result_);
    }
    TANDEM_RETURN_IF_ERROR(Segments(/*in_variable=*/false));
    if (Take(':')) {
      result_.verb_ = Literal();
      if (result_.verb_.empty()) return Error("a verb expected");
    }
    if (at_ != text_.size()) return Error("the end expected");
    for (size_t i = 0; i + 1 < result_.segments_.size(); ++i) {
      if (result_.segments_[i].kind == PathTemplate::Kind::kMany) {
        return Error("'**' must be the last segment, but an earlier one is");
      }
    }
    return std::move(result_);
  }

 private:
  using Kind = PathTemplate::Kind;

  absl::Status Error(const char* what) const {
    return absl::InvalidArgumentError(
        absl::StrFormat("path template '%s', at %d: %s", std::string(text_), at_, what));
  }
  bool Take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string Literal() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           std::string_view("/{}*:=?#%").find(text_[at_]) == std::string_view::npos &&
           absl::ascii_isgraph(static_cast<unsigned char>(text_[at_]))) {
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  absl::Status Segments(bool in_variable) {
    do {
      TANDEM_RETURN_IF_ERROR(OneSegment(in_variable));
    } while (Take('/'));
    return absl::OkStatus();
  }
  absl::Status OneSegment(bool in_variable) {
    if (Take('{')) {
      if (in_variable) return Error("a variable within a variable");
      return Variable();
    }
    if (Take('*')) {
      result_.segments_.push_back({Take('*') ? Kind::kMany : Kind::kOne, ""});
      return absl::OkStatus();
    }
    std::string literal = Literal();
    if (literal.empty()) return Error("a segment expected");
    result_.segments_.push_back({Kind::kLiteral, std::move(literal)});
    return absl::OkStatus();
  }
  absl::Status Variable() {
    PathTemplate::Variable variable;
    const size_t name_begin = at_;
    do {
      const size_t begin = at_;
      while (at_ < text_.size() &&
             (text_[at_] == '_' || absl::ascii_isalnum(static_cast<unsigned char>(text_[at_])))) {
        ++at_;
      }
      if (at_ == begin || absl::ascii_isdigit(static_cast<unsigned char>(text_[begin]))) {
        return Error("a field's name expected");
      }
    } while (Take('.'));
    variable.field_path = text_.substr(name_begin, at_ - name_begin);
    for (const PathTemplate::Variable& other : result_.variables_) {
      if (other.field_path == variable.field_path) return Error("this variable is there already");
    }
    variable.begin = result_.segments_.size();
    if (Take('=')) {
      TANDEM_RETURN_IF_ERROR(Segments(/*in_variable=*/true));
    } else {
      result_.segments_.push_back({Kind::kOne, ""});
    }
    if (!Take('}')) return Error("'}' expected");
    variable.end = result_.segments_.size();
    variable.multi_segment =
        variable.end - variable.begin > 1 || result_.segments_.back().kind == Kind::kMany;
    result_.variables_.push_back(std::move(variable));
    return absl::OkStatus();
  }

  const std::string_view text_;
  size_t at_ = 0;
  PathTemplate result_;
};

absl::StatusOr<PathTemplate> PathTemplate::Parse(std::string_view text) {
  return PathTemplateParser(text).Parse();
}

std::optional<PathTemplate::Bindings> PathTemplate::Match(std::string_view path) const {
  if (path.empty() || path[0] != '/') return std::nullopt;
  if (!verb_.empty()) {
    const size_t colon = path.rfind(':');
    if (colon == std::string_view::npos || path.find('/', colon) != std::string_view::npos ||
        PercentDecode(path.substr(colon + 1)) != verb_) {
      return std::nullopt;
    }
    path = path.substr(0, colon);
  }
  std::vector<std::string_view> parts = SplitSegments(path);
  const bool open_end = segments_.back().kind == Kind::kMany;
  const size_t num_fixed = segments_.size() - (open_end ? 1 : 0);
  if (open_end ? parts.size() < num_fixed : parts.size() != num_fixed) return std::nullopt;
  for (size_t i = 0; i < num_fixed; ++i) {
    if (segments_[i].kind == Kind::kOne ? parts[i].empty()
                                        : PercentDecode(parts[i]) != segments_[i].literal) {
      return std::nullopt;
    }
  }
  Bindings bindings;
  for (const Variable& variable : variables_) {
    const size_t end = open_end && variable.end == segments_.size() ? parts.size() : variable.end;
    std::string value;
    for (size_t i = variable.begin; i < end; ++i) {
      if (i > variable.begin) value.push_back('/');
      value += PercentDecode(parts[i], /*keep_slash=*/variable.multi_segment);
    }
    bindings.emplace_back(variable.field_path, std::move(value));
  }
  return bindings;
}

std::string PathTemplate::Shape() const {
  std::string out;
  for (const Segment& segment : segments_) {
    out += segment.kind == Kind::kOne    ? "/*"
           : segment.kind == Kind::kMany ? "/**"
                                         : "/" + segment.literal;
  }
  return verb_.empty() ? out : out + ":" + verb_;
}

std::strong_ordering PathTemplate::operator<=>(const PathTemplate& other) const {
  // Where one ends and the other goes on no path matches both, but for `**`, which comes last.
  for (size_t i = 0; i < segments_.size() || i < other.segments_.size(); ++i) {
    const Segment end{Kind::kEnd, ""};
    const Segment& left = i < segments_.size() ? segments_[i] : end;
    const Segment& right = i < other.segments_.size() ? other.segments_[i] : end;
    if (const auto order = left <=> right; order != 0) return order;
  }
  if (verb_.empty() != other.verb_.empty()) {
    return verb_.empty() ? std::strong_ordering::greater : std::strong_ordering::less;
  }
  return verb_ <=> other.verb_;
}

}  // namespace tandem::gateway

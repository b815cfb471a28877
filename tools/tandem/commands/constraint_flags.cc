#include "tools/tandem/commands/constraint_flags.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/commands/request_flags.h"

namespace tandem {
namespace {

constexpr size_t kMaxSourceBytes = size_t{1} << 20;  // the gateway's limit

absl::StatusOr<std::string> ReadSource(const std::string& flag, const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    text.resize(kMaxSourceBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
  }
  if (file.bad() || (!file && !file.eof())) {
    return absl::NotFoundError(absl::StrFormat("%s: %s cannot be read: %s", flag, path,
                                               std::strerror(errno != 0 ? errno : EIO)));
  }
  if (text.size() > kMaxSourceBytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: %s has more than %d bytes", flag, path, kMaxSourceBytes));
  }
  TANDEM_RETURN_IF_ERROR(CheckText(flag + ": " + path, text));
  return text;
}

}  // namespace

void AddConstraintFlags(CLI::App& command, ConstraintFlags& flags) {
  const std::vector<CLI::Option*> options = {
      command
          .add_option("--schema", flags.schema_file,
                      "The answer is JSON of this JSON Schema's form")
          ->type_name("FILE"),
      command
          .add_option("--grammar", flags.grammar_file,
                      "The answer is a text of this grammar: Lark's in a file that ends in .lark, "
                      "else llama.cpp's (GBNF)")
          ->type_name("FILE"),
      command
          .add_option("--regex", flags.regex,
                      "The answer as a whole matches this regular expression (RE2's syntax)")
          ->allow_extra_args(false),
      command
          .add_option("--choices", flags.choices,
                      "The answer is one of these texts: \"yes,no\"; may be repeated")
          ->delimiter(',')
          ->allow_extra_args(false),
  };
  for (CLI::Option* option : options) {
    for (CLI::Option* other : options) {
      if (other != option) option->excludes(other);
    }
  }
}

absl::StatusOr<std::optional<v1::Constraint>> MakeConstraint(const ConstraintFlags& flags) {
  v1::Constraint constraint;
  if (!flags.schema_file.empty()) {
    TANDEM_ASSIGN_OR_RETURN(*constraint.mutable_json_schema(),
                            ReadSource("--schema", flags.schema_file));
  } else if (!flags.grammar_file.empty()) {
    const bool lark = flags.grammar_file.ends_with(".lark");
    TANDEM_ASSIGN_OR_RETURN(*(lark ? constraint.mutable_lark() : constraint.mutable_gbnf()),
                            ReadSource("--grammar", flags.grammar_file));
  } else if (flags.regex.has_value()) {
    TANDEM_RETURN_IF_ERROR(CheckText("--regex", *flags.regex));
    constraint.set_regex(*flags.regex);
  } else if (!flags.choices.empty()) {
    for (const std::string& choice : flags.choices) {
      TANDEM_RETURN_IF_ERROR(CheckText("--choices", choice));
      constraint.mutable_choices()->add_texts(choice);
    }
  } else {
    return std::optional<v1::Constraint>();
  }
  return std::optional<v1::Constraint>(std::move(constraint));
}

}  // namespace tandem

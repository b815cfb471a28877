#include "services/gateway/model/model_names.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "services/common/base/client_text.h"

namespace tandem::gateway {
namespace {

constexpr size_t kMaxAliasBytes = 256;

std::string_view Without(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

std::string_view WithoutTag(std::string_view name) { return Without(name, ":latest"); }

bool IsSame(std::string_view a, std::string_view b) { return WithoutTag(a) == WithoutTag(b); }

bool IsBlankOrControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte <= 0x20 || byte == 0x7F;
}

}  // namespace

absl::Status CheckAlias(std::string_view alias) {
  if (alias.empty()) return absl::InvalidArgumentError("the name is empty");
  if (alias.size() > kMaxAliasBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the name has %d bytes, at most %d", alias.size(), kMaxAliasBytes));
  }
  if (std::any_of(alias.begin(), alias.end(), IsBlankOrControl)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s': a name has neither blanks nor control characters", std::string(alias)));
  }
  return absl::OkStatus();
}

ModelNames::ModelNames(std::string served, ModelNameOptions options)
    : listed_({std::move(served)}), any_(options.any) {
  for (std::string& alias : options.aliases) {
    const bool listed = std::any_of(listed_.begin(), listed_.end(),
                                    [&](const std::string& name) { return IsSame(name, alias); });
    if (!listed) listed_.push_back(std::move(alias));
  }
  const std::string_view path = this->served();
  const std::string_view file = path.substr(path.rfind('/') + 1);
  for (const std::string_view name : {path, file}) {
    file_names_.emplace_back(name);
    file_names_.emplace_back(Without(name, ".gguf"));
  }
}

absl::StatusOr<std::string> ModelNames::Resolve(std::string_view text) const {
  const std::string name = absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                                               {{"%2F", "/"}, {"%2f", "/"}});
  if (name.empty()) return served();
  for (const std::string& listed : listed_) {
    if (IsSame(listed, name)) return listed;
  }
  for (const std::string& file_name : file_names_) {
    if (IsSame(file_name, name)) return served();
  }
  if (any_) return served();
  std::string known = absl::StrFormat("\"%s\"", served());
  for (size_t i = 1; i < listed_.size(); ++i) known += absl::StrFormat(", \"%s\"", listed_[i]);
  return absl::NotFoundError(absl::StrFormat("model: this server does not serve \"%s\", only %s",
                                             ClientText(name, kMaxAliasBytes), known));
}

}  // namespace tandem::gateway

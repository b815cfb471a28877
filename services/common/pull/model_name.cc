#include "services/common/pull/model_name.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/model/mmproj_name.h"

namespace tandem::pull {
namespace {

constexpr size_t kMaxPart = 96;
constexpr size_t kMaxFile = 200;

bool IsPlain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("._-+=").find(c) != std::string_view::npos;
}

// `what` names the part in the error.  The text itself is printed with all that is not printable
// escaped.
absl::Status CheckPart(std::string_view part, const char* what, size_t max_size = kMaxPart) {
  const auto refuse = [&](const std::string& why) {
    const std::string shown = absl::CHexEscape(std::string(part.substr(0, kMaxFile)));
    return absl::InvalidArgumentError(absl::StrFormat("%s '%s' %s", what, shown, why));
  };
  if (part.empty()) return absl::InvalidArgumentError(absl::StrFormat("the %s is empty", what));
  if (part.size() > max_size) return refuse(absl::StrFormat("is longer than %d", max_size));
  if (!std::all_of(part.begin(), part.end(), IsPlain)) {
    return refuse("may hold letters, digits, '.', '_', '-', '+' and '=' alone");
  }
  if (part[0] == '.' || part[0] == '-') return refuse("may not begin with '.' or '-'");
  return absl::OkStatus();
}

absl::StatusOr<ModelName> ParseHubName(std::string_view text) {
  ModelName name;
  name.from_hub = true;
  const size_t slash = text.find('/');
  if (slash == text.npos) {
    return absl::InvalidArgumentError("a name of the hub is hf:OWNER/REPO[@REVISION][:FILE]");
  }
  name.hub.owner = std::string(text.substr(0, slash));
  std::string_view rest = text.substr(slash + 1);
  if (const size_t colon = rest.find(':'); colon != rest.npos) {
    name.hub.file = std::string(rest.substr(colon + 1));
    rest = rest.substr(0, colon);
    TANDEM_RETURN_IF_ERROR(CheckFile(name.hub.file));
  }
  if (const size_t at = rest.find('@'); at != rest.npos) {
    name.hub.revision = std::string(rest.substr(at + 1));
    rest = rest.substr(0, at);
    TANDEM_RETURN_IF_ERROR(CheckPart(name.hub.revision, "revision"));
  }
  name.hub.repo = std::string(rest);
  TANDEM_RETURN_IF_ERROR(CheckRepository(name.hub.owner, name.hub.repo));
  name.text = name.hub.Name();
  return name;
}

}  // namespace

std::string HubFile::Name() const {
  std::string name = "hf:" + repository();
  if (revision != "main") name += "@" + revision;
  if (!file.empty()) name += ":" + file;
  return name;
}

absl::Status CheckRepository(std::string_view owner, std::string_view repo) {
  TANDEM_RETURN_IF_ERROR(CheckPart(owner, "owner"));
  return CheckPart(repo, "repository");
}

absl::Status CheckFile(std::string_view file) {
  const size_t slash = file.find('/');
  if (slash == file.npos) return CheckPart(file, "file", kMaxFile);
  // OWNER/REPO/FOLDER/FILE: the loader's names have four components.
  TANDEM_RETURN_IF_ERROR(CheckPart(file.substr(0, slash), "folder"));
  return CheckPart(file.substr(slash + 1), "file", kMaxFile);
}

absl::StatusOr<ModelName> ParseModelName(std::string_view text) {
  for (const std::string_view prefix : {"hf:", "hf.co/", "huggingface.co/"}) {
    if (text.starts_with(prefix)) return ParseHubName(text.substr(prefix.size()));
  }
  ModelName name;
  const size_t colon = text.find(':');
  TANDEM_RETURN_IF_ERROR(CheckPart(text.substr(0, colon), "model name"));
  name.text = absl::AsciiStrToLower(std::string(text.substr(0, colon)));
  if (colon == text.npos) return name;
  const std::string tag = absl::AsciiStrToLower(std::string(text.substr(colon + 1)));
  TANDEM_RETURN_IF_ERROR(CheckPart(tag, "tag"));
  if (tag != "latest") name.text += ":" + tag;
  return name;
}

bool LooksLikeModelName(std::string_view text) {
  if (text.starts_with("synthetic:")) return false;
  if (text.starts_with("hf:") || text.starts_with("hf.co/")) return true;
  return text.find(':') != text.npos && text.find('/') == text.npos;
}

std::string FileNameOf(std::string_view path) {
  return std::string(path.substr(path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1));
}

bool IsModelFile(std::string_view path) {
  const std::string name = absl::AsciiStrToLower(FileNameOf(path));
  return name.ends_with(".gguf") && !IsMmprojName(name) && name.find("-of-0") == name.npos;
}

bool IsEncoderFile(std::string_view path) { return IsMmprojName(FileNameOf(path)); }

}  // namespace tandem::pull

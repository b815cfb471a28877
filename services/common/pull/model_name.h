// The names that models are pulled by.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::pull {

// A file of a repository on the hub.  Made by ParseModelName or by the table; every part is
// checked.
struct HubFile {
  std::string owner, repo;
  std::string revision = "main";  // a branch, a tag or a commit
  std::string file;               // of one or two components; empty: to be chosen

  std::string repository() const { return owner + "/" + repo; }
  // "hf:OWNER/REPO[@REVISION][:FILE]", as ParseModelName reads it.
  std::string Name() const;
};

struct ModelName {
  std::string text;       // in the form that all names of its kind have: "gemma3:27b"
  bool from_hub = false;  // then `hub` says which; else `text` is looked up in the table
  HubFile hub;            // `file` may be a quantisation, "Q4_0", or empty
};

// "gemma3:27b", "gemma3" and "gemma3:latest" are names of the table, letter case aside.
// "hf:OWNER/REPO[@REVISION][:FILE]" and "hf.co/OWNER/REPO[:FILE]" name the hub.
// INVALID_ARGUMENT describes the error: names hold letters, digits, '.', '_', '-', '+' and '='
// alone, no part begins with '.' or '-', and so none is "..", absolute or percent-encoded.
absl::StatusOr<ModelName> ParseModelName(std::string_view name);

// Whether `text`, given where a path is expected too, is meant as a name: it begins with "hf:" or
// "hf.co/", or has a colon and no slash.  Synthetic names are not.
bool LooksLikeModelName(std::string_view text);

// Checks OWNER/REPO or FILE.  INVALID_ARGUMENT.
absl::Status CheckRepository(std::string_view owner, std::string_view repo);
absl::Status CheckFile(std::string_view file);

// Whether `path`'s last component is that of a GGUF file that is a model by itself: no vision
// projector and no part of a split one.
bool IsModelFile(std::string_view path);
// Whether it is that of a vision encoder, an mmproj file.
bool IsEncoderFile(std::string_view path);

// "FILE" of "FOLDER/FILE".
std::string FileNameOf(std::string_view path);

}  // namespace tandem::pull

// What clients may call the served model.  This decides it for every API: OpenAI's, Ollama's,
// llama.cpp's, REST and gRPC.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::gateway {

struct ModelNameOptions {
  std::vector<std::string> aliases;  // --alias
  bool any = false;                  // --any-model-name: every name means the served model
};

// INVALID_ARGUMENT: `alias` is empty, longer than 256 bytes, or has blanks or control characters.
absl::Status CheckAlias(std::string_view alias);

// The served model answers to
//   - no name at all,
//   - its own name, "quants/demo.Q8_0.gguf", and its last component, "demo.Q8_0.gguf",
//   - both without the suffix ".gguf",
//   - its aliases,
//   - each of these with Ollama's tag ":latest", or without it,
//   - each of these with "%2F" for "/": clients write names into paths so, and path templates of
//     several segments leave it as it is.
// Letter case counts.  Immutable.
class ModelNames {
 public:
  ModelNames() = default;
  // `served`: the loader's name of the model.
  ModelNames(std::string served, ModelNameOptions options);

  // The name under which lists have the model that `text` means: the served name or an alias.
  // NOT_FOUND says what the model is called.
  absl::StatusOr<std::string> Resolve(std::string_view text) const;
  // The served name, then the aliases; each once.
  const std::vector<std::string>& listed() const { return listed_; }
  const std::string& served() const { return listed_.front(); }

 private:
  std::vector<std::string> listed_ = {""};
  std::vector<std::string> file_names_;  // other forms of the served name
  bool any_ = false;
};

}  // namespace tandem::gateway

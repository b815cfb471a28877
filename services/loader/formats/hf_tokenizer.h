// The tokenizer files of a safetensors release.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/common/model/vocabulary.h"
#include "services/loader/formats/model_folder.h"
#include "services/loader/formats/opened_model.h"

namespace tandem::loader {

struct HfTokenizer {
  Vocabulary vocabulary;      // [vocab_size]
  std::string chat_template;  // empty: none
};

// Reads tokenizer.model (required), tokenizer_config.json, added_tokens.json, and the chat
// template: chat_template.jinja, else chat_template.json, else the one in tokenizer_config.json
// (a text, or the entry "default" of a list).  Adds all bytes read to `hash`.
// INVALID_ARGUMENT names the file, the offset and the reason.
absl::StatusOr<HfTokenizer> ReadHfTokenizer(const ModelFolder& folder, uint32_t vocab_size,
                                            ContentHash& hash);

}  // namespace tandem::loader

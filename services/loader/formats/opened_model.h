// The one implementation of ModelSource: what the format readers produce, and its open files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "services/loader/formats/byte_source.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

struct OpenedModel {
  std::string format;
  ModelConfig config;
  Vocabulary vocabulary;
  std::string chat_template;
  SamplingDefaults sampling_defaults;
  std::vector<std::string> warnings;
  std::vector<SourceTensor> tensors;
  std::vector<SkippedTensor> skipped;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string content_id;
  std::vector<std::string> file_names;  // as printed in errors, parallel to files
  std::vector<FileSource> files;        // SourceTensor::file indexes these
};

absl::StatusOr<OpenedModel> OpenGguf(const std::string& path);
absl::StatusOr<OpenedModel> OpenSafetensors(const std::string& folder);

// Hash over named pieces of content, in the order in which they are added.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void Add(std::string_view bytes);
  // Size, modification time and the first `header_bytes` bytes of a file.
  absl::Status AddFile(const FileSource& file, uint64_t header_bytes);
  // 32 hexadecimal digits (XXH3, 128 bits).
  std::string Finish() const;

 private:
  void* state_;  // XXH3_state_t, aligned by its own allocator
};

}  // namespace tandem::loader

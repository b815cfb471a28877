// A model's vision encoder, opened and checked.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/vision_config.h"
#include "services/common/weights/vision_weights.h"
#include "services/loader/formats/byte_source.h"
#include "services/loader/formats/gguf.h"
#include "services/loader/vision/vision_tensors.h"

namespace tandem::loader {

// Immutable after opening, so thread-safe.
struct VisionSource {
  std::string format;  // "gguf", "safetensors"
  std::string path;    // of the mmproj file or the folder
  VisionConfig config;
  std::vector<VisionTensor> tensors;  // by layer and role, each exactly once
  std::vector<std::pair<std::string, std::string>> metadata;  // printable, in file order
  std::string content_id;                                     // as ModelSource's
  std::vector<std::string> file_names;                        // parallel to files
  std::vector<FileSource> files;

  // Rows of the tensor from `first_row` as float32, as many as fill `out`.  REQUIRES whole rows
  // that the tensor has.  DATA_LOSS when the file has been cut short.
  absl::Status ReadRows(const VisionTensor& tensor, uint64_t first_row, std::span<float> out) const;
  // All of it, [shape.rows * shape.cols].
  absl::StatusOr<std::vector<float>> Read(const VisionTensor& tensor) const;
};

// Everything of an mmproj file but its path, content id and open file.
absl::StatusOr<VisionSource> InterpretVisionGguf(const GgufHeader& header);

// Opens an mmproj file or the encoder of a safetensors folder.  Errors as OpenModelSource's;
// NOT_FOUND for a folder whose model has no vision encoder.
absl::StatusOr<std::unique_ptr<VisionSource>> OpenVisionSource(const std::string& path);

// Whether the file at `path` is an mmproj file.  False for other files.
bool IsVisionFile(const std::string& path);

// The vision encoder of the model at `path`: the folder itself if its configuration has one, for a
// GGUF file the mmproj file beside it that ChooseMmproj takes (common/model/mmproj_name.h).
// nullopt for a model without one.
std::optional<std::string> FindVision(const std::string& path);

// Every tensor as float32.
absl::StatusOr<VisionWeights> ReadVisionWeights(const VisionSource& source);

// INVALID_ARGUMENT unless the encoder's soft tokens are as wide as the decoder's rows.
absl::Status CheckVisionFits(const VisionSource& source, uint32_t hidden_dim);

// `tandem inspect`: header, configuration and tensors as aligned tables.
std::string DescribeVisionSource(const VisionSource& source);

}  // namespace tandem::loader

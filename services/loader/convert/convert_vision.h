// A vision encoder in any form we read -> one mmproj file, as llama.cpp writes it.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"
#include "services/loader/convert/convert.h"
#include "services/loader/convert/new_file.h"
#include "services/loader/vision/vision_source.h"

namespace tandem::loader {

struct VisionConvertOptions {
  DType type = DType::kF16;  // of the layers' matrices: F32, F16, BF16 or Q8_0
  std::string name;          // general.name
  int num_threads = 0;       // 0: one per core
};

// Writes the encoder to a file beside `path`, which takes that name by Publish; it has been read
// back.  The layers' matrices take the type, but f16 where their rows are no whole blocks of Q8_0.
// Vectors, the patch convolution and the position table are float32, and so is the projection
// unless the type is F16 or Q8_0: then it is F16, as llama.cpp has it.
// `progress` and errors as for ConvertToGguf, but for ALREADY_EXISTS, which Publish returns.
absl::StatusOr<NewFile> WriteMmproj(const VisionSource& source, const std::string& path,
                                    const VisionConvertOptions& options,
                                    const std::function<bool(const ConvertProgress&)>& progress);

// The mmproj file's place beside the model that is written to `model`, FOLDER/STEM.gguf:
// FOLDER/STEM.mmproj-F16.gguf, where the loader finds it.  A number format at STEM's end is left
// out, so that the file belongs to the model in every format.
std::string MmprojBeside(const std::string& model, DType type);

// The type by its name: f32, f16, bf16 or q8_0.  INVALID_ARGUMENT lists them.
absl::StatusOr<DType> ParseMmprojType(const std::string& name);

}  // namespace tandem::loader

// The number format of a model's files, by the name that people know it by: "Q4_K_M".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "services/loader/source/model_source.h"

namespace tandem::loader {

// The format of most bytes of the layers' matrices, in capitals.  The embedding is left out: files
// often give it more bits.  K-quants end in _S where all these matrices have that format, and in _M
// where some have more bits; `file_type` (GGUF's general.file_type, a number of llama.cpp's
// llama_ftype) says more (Q5_K_S, Q4_K_M) where it names the same format.
std::string QuantizationName(const std::vector<SourceTensor>& tensors, std::string_view file_type);

// The same of an opened model.
std::string QuantizationOf(const ModelSource& source);

}  // namespace tandem::loader

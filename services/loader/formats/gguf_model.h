// What a GGUF file's keys say about a Gemma 3 model.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "services/loader/formats/decoder_tensors.h"
#include "services/loader/formats/gguf.h"
#include "services/loader/formats/opened_model.h"

namespace tandem::loader {

// Its tensors as readers of all formats take them.
std::vector<FileTensor> FileTensorsOf(const GgufHeader& header);

// Everything of OpenedModel but its files and its content id.  The attention scale, which GGUF
// does not carry, is head_dim^-0.5, but (hidden_dim / num_heads)^-0.5 for the 62-layer model,
// unless gemma3.attention.scale is there (as in llama.cpp).  Norms already hold 1 + w.
// INVALID_ARGUMENT names the key or tensor, its offset and the fault.
absl::StatusOr<OpenedModel> InterpretGguf(const GgufHeader& header);

}  // namespace tandem::loader

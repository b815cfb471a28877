// Writes vision encoders for tests, right ones and wrong ones.
#pragma once

#include "services/common/model/vision_config.h"
#include "services/loader/formats/testing/gguf_builder.h"
#include "services/loader/formats/testing/release_builder.h"

namespace tandem::loader::testing {

// The encoder of both builders: pictures of 8 pixels, 4 x 4 patches of 2, 2 layers, hidden 32, FFN
// 64, 2 heads, 4 soft tokens of 8 numbers (as SmallGguf's and SmallRelease's rows).
VisionConfig SmallVisionConfig();

// Number `i` of every tensor: small, and exact in all plain formats.
float SmallVisionValue(uint64_t i);

// An mmproj file of these sizes, its matrices in ggml's type `matrix_type` (1: F16).
GgufBuilder Mmproj(const VisionConfig& config, uint32_t matrix_type = 1);
GgufBuilder SmallMmproj(uint32_t matrix_type = 1);
// Names fc1 ffn_down and fc2 ffn_up, as mmproj files of before May 2025 do.
void SwapFfnNames(GgufBuilder& builder);

// SmallRelease as Gemma3ForConditionalGeneration, bfloat16, names as before transformers 4.52.
Release SmallVisionRelease();

}  // namespace tandem::loader::testing

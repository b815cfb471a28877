// The numbers of a vision encoder of the Gemma 3 family.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"

namespace tandem {

// How a picture's pixels become the encoder's input: resized to a square of the encoder's size,
// then, for each channel, (byte * rescale - mean) / std.
struct PixelNormalisation {
  double rescale = 1.0 / 255.0;
  std::array<float, 3> mean = {0.5f, 0.5f, 0.5f};
  std::array<float, 3> std = {0.5f, 0.5f, 0.5f};
  friend bool operator==(const PixelNormalisation&, const PixelNormalisation&) = default;
};

// SigLIP encoder with Gemma 3's projector (Gemma 3 Technical Report, section 2.2).  All of it is
// resolved: nothing here is "absent means default".
struct VisionConfig {
  uint32_t image_size = 0;  // pixels of a side
  uint32_t patch_size = 0;  // pixels of a patch's side
  uint32_t num_layers = 0;
  uint32_t hidden_dim = 0;
  uint32_t ffn_dim = 0;
  uint32_t num_heads = 0;
  float layer_norm_eps = 1e-6f;
  uint32_t tokens_per_image = 0;  // soft tokens, a square number
  uint32_t text_hidden_dim = 0;   // of the decoder: the width of a soft token
  PixelNormalisation pixels;

  uint32_t head_dim() const { return hidden_dim / num_heads; }
  uint32_t patches_per_side() const { return image_size / patch_size; }
  uint32_t num_patches() const { return patches_per_side() * patches_per_side(); }
  uint32_t patch_dim() const { return 3 * patch_size * patch_size; }
  // Soft tokens of a side, and the patches of a side that are averaged to one.
  uint32_t tokens_per_side() const;
  uint32_t pool_size() const { return patches_per_side() / tokens_per_side(); }

  // INVALID_ARGUMENT naming the first field that is zero, out of range or inconsistent.  Bounds as
  // ModelConfig's; a side has at most 4096 pixels and 256 patches.
  absl::Status Validate() const;
  friend bool operator==(const VisionConfig&, const VisionConfig&) = default;
};

}  // namespace tandem

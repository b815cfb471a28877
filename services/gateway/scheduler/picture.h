// An encoded picture, as sequences hold it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace tandem::gateway {

// Immutable.
struct Picture {
  // Stands for the picture in the prefix cache, in the place of tokens: no other picture of this
  // gateway's life has it, and no token.  See PictureKey.
  uint32_t key = 0;
  std::vector<float> soft_tokens;  // [rows of a picture, hidden_dim]
};

// An encoded file: the whole picture, then its crops (pan_and_scan.h) where they are wanted and it
// has some.  Never empty.
using PictureViews = std::vector<std::shared_ptr<const Picture>>;  // shared with caches

// The key of the gateway's n-th picture.  Tokens are below 2^31, and kNoToken is never a key.
inline constexpr uint32_t kFirstPictureKey = 1u << 31;
inline constexpr uint32_t kMostPictureKeys = (1u << 31) - 1;
inline constexpr bool IsPictureKey(uint32_t token) {
  return token >= kFirstPictureKey && token - kFirstPictureKey < kMostPictureKeys;
}

// A picture in a prompt: the rows of its soft tokens.
struct PictureSpan {
  uint32_t first = 0;  // position of the first row
  uint32_t num_rows = 0;
  std::shared_ptr<const Picture> picture;  // shared with the cache and other sequences

  uint32_t end() const { return first + num_rows; }
};

}  // namespace tandem::gateway

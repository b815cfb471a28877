// Where a picture's time goes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace tandem::gateway {

enum class PictureStage : uint8_t {
  kFetch,    // from another server, to the file or an error
  kDecode,   // from the file to RGB, with the wait for a decoder
  kPrepare,  // from RGB to pixel values
  kEncode,   // from pixel values to soft tokens, of a batch
};
inline constexpr int kNumPictureStages = 4;

// "fetch".
constexpr const char* PictureStageName(PictureStage stage) {
  constexpr const char* kNames[kNumPictureStages] = {"fetch", "decode", "prepare", "encode"};
  return kNames[static_cast<int>(stage)];
}

// One stage of pictures of a request.
struct PictureTime {
  PictureStage stage = PictureStage::kFetch;
  uint32_t picture = 0;       // its place among those of the request; of a batch the first one's
  uint32_t num_pictures = 1;  // of a batch
  absl::Time begin, end;
};
using PictureTimes = std::vector<PictureTime>;

}  // namespace tandem::gateway

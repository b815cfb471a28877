// A toy model that takes pictures, and pictures for it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "services/common/base/check.h"
#include "services/common/testing/paths.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/model/picture_encoder.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway::testing {

inline constexpr uint32_t kToyPictureRows = 9;

// A BMP file of 2 x 2 pixels of one grey.
inline std::string ToyBmp(uint8_t grey) {
  std::string file("BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x02\0\0\0\x01\0\x18\0", 30);
  file.resize(54);
  for (int row = 0; row < 2; ++row)
    file += std::string(6, static_cast<char>(grey)) + std::string(2, '\0');
  return file;
}

// A BMP file of 512 x 256 pixels, left half and right half of one grey each: two crops.
inline std::string WideToyBmp(uint8_t left, uint8_t right) {
  std::string file = ToyBmp(0).substr(0, 54);
  file[19] = 2;  // 512
  file[18] = 0;
  file[23] = 1;  // 256
  file[22] = 0;
  for (int row = 0; row < 256; ++row) {
    file += std::string(768, static_cast<char>(left)) + std::string(768, static_cast<char>(right));
  }
  return file;
}

// What the toy encoder makes of pixels: their first number, everywhere.
inline std::vector<float> ToySoftTokens(float pixel) {
  return std::vector<float>(size_t{kToyPictureRows} * ToyConfig(256, 20).hidden_dim, pixel);
}
inline float ToyPixel(uint8_t grey) { return (static_cast<float>(grey) - 127.5f) / 127.5f; }

inline absl::StatusOr<std::vector<std::vector<float>>> ToyEncode(
    std::span<const std::vector<float>> pixels) {
  std::vector<std::vector<float>> encoded;
  for (const std::vector<float>& picture : pixels) encoded.push_back(ToySoftTokens(picture[0]));
  return encoded;
}

inline PictureEncoderOptions ToyPictureOptions() {
  return {.decoder = {.program = BuildPath("bin/tandem-image-decoder")}};
}

// `fetch_images`, `pan_and_scan`: as the gateway's flags.
inline std::unique_ptr<ServedModel> MakeSeeingToyModel(std::vector<std::string> fetch_images = {},
                                                       bool pan_and_scan = false) {
  FakeExecutorOptions fake;
  fake.takes_pictures = true;
  fake.limits.picture_rows = kToyPictureRows;
  fake.limits.max_pictures = fake.limits.max_rows / kToyPictureRows;
  auto model = ServedModel::Create(
      std::make_unique<FakeExecutor>(std::move(fake)),
      {.max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .max_waiting = 20}, {}, {},
      [&](const Executor& executor) {
        PictureEncoderOptions options = ToyPictureOptions();
        options.fetcher.hosts = std::move(fetch_images);
        options.pan_and_scan = pan_and_scan;
        return PictureEncoder::Create(std::move(options), *executor.config().vision, ToyEncode);
      });
  TANDEM_CHECK(model.ok());
  return *std::move(model);
}

}  // namespace tandem::gateway::testing

// Files of pictures of every format, as tandem-image-decoder reads them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "services/common/base/check.h"
#include "services/image_decoder/formats/decode.h"
#include "services/image_decoder/testing/picture_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::image_decoder;
  constexpr uint64_t kMaxPixels = 1 << 16;
  static std::vector<uint8_t> room(3 * kMaxPixels);
  PixelSink sink(room, kMaxPixels);
  // A PNG's checksums would keep nearly all changes from what reads them.
  std::string file(reinterpret_cast<const char*>(data), size);
  tandem::testing::FixPngChecksums(file);
  const absl::Status status =
      DecodePicture({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, sink);
  if (status.ok()) {
    TANDEM_CHECK(sink.width() > 0 && sink.height() > 0);
    TANDEM_CHECK(uint64_t{sink.width()} * sink.height() <= kMaxPixels);
  } else {
    TANDEM_CHECK(absl::IsInvalidArgument(status));
  }
  return 0;
}

#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/image_decoder/formats/decode.h"
#include "services/image_decoder/formats/exif.h"

namespace tandem::image_decoder {
namespace {

struct DemuxerDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

uint32_t OrientationOf(const WebPDemuxer* demuxer) {
  uint32_t orientation = 1;
  WebPChunkIterator chunk{};
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) != 0) {
    orientation = ExifOrientation({chunk.chunk.bytes, chunk.chunk.size});
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

absl::Status DecodeWebp(std::span<const uint8_t> file, PixelSink& sink) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(file.data(), file.size(), &features) != VP8_STATUS_OK) {
    return Refused("WebP", "is damaged: its header cannot be read");
  }
  if (features.has_animation != 0) return Refused("WebP", "is animated: send a still picture");
  const WebPData data{file.data(), file.size()};
  const std::unique_ptr<WebPDemuxer, DemuxerDeleter> demuxer(WebPDemux(&data));
  if (demuxer == nullptr) return Refused("WebP", "is damaged or cut off");
  const auto width = static_cast<uint32_t>(features.width);
  const auto height = static_cast<uint32_t>(features.height);
  TANDEM_RETURN_IF_ERROR(sink.Begin(width, height, OrientationOf(demuxer.get())));
  const bool alpha = features.has_alpha != 0;
  const size_t stride = size_t{width} * (alpha ? 4 : 3);
  std::vector<uint8_t> pixels(stride * height);
  const auto decode = alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (decode(file.data(), file.size(), pixels.data(), pixels.size(), static_cast<int>(stride)) ==
      nullptr) {
    return Refused("WebP", "is damaged or cut off");
  }
  for (uint32_t y = 0; y < height; ++y) {
    const uint8_t* row = &pixels[y * stride];
    alpha ? sink.PutRgbaRow(y, row) : sink.PutRow(y, row);
  }
  return absl::OkStatus();
}

}  // namespace tandem::image_decoder

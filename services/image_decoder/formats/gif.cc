#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/image_decoder/formats/decode.h"

namespace tandem::image_decoder {
namespace {

struct GifCloser {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};

struct GifSource {
  std::span<const uint8_t> file;
  size_t at = 0;
};

int ReadBytes(GifFileType* gif, GifByteType* out, int size) {
  auto* source = static_cast<GifSource*>(gif->UserData);
  const size_t taken = std::min(static_cast<size_t>(size), source->file.size() - source->at);
  std::memcpy(out, source->file.data() + source->at, taken);
  source->at += taken;
  return static_cast<int>(taken);
}

absl::Status Damaged(int error) {
  if (error == D_GIF_ERR_READ_FAILED || error == D_GIF_ERR_EOF_TOO_SOON) {
    return Refused("GIF", "is cut off");
  }
  const char* reason = GifErrorString(error);
  return Refused("GIF", absl::StrFormat("is damaged: %s",
                                        std::string(reason == nullptr ? "bad data" : reason)));
}

// An extension's blocks; keeps the transparent colour if it is there.
absl::Status ReadExtension(GifFileType* gif, int& transparent) {
  int code = 0;
  GifByteType* block = nullptr;
  if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return Damaged(gif->Error);
  while (block != nullptr) {
    GraphicsControlBlock control;
    if (code == GRAPHICS_EXT_FUNC_CODE &&
        DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
      transparent = control.TransparentColor;
    }
    if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return Damaged(gif->Error);
  }
  return absl::OkStatus();
}

// Moves to the first frame's description.
absl::Status FindFirstFrame(GifFileType* gif, int& transparent) {
  while (true) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &type) == GIF_ERROR) return Damaged(gif->Error);
    if (type == TERMINATE_RECORD_TYPE) return Refused("GIF", "has no picture in it");
    if (type == IMAGE_DESC_RECORD_TYPE) {
      return DGifGetImageDesc(gif) == GIF_ERROR ? Damaged(gif->Error) : absl::OkStatus();
    }
    if (type == EXTENSION_RECORD_TYPE) TANDEM_RETURN_IF_ERROR(ReadExtension(gif, transparent));
  }
}

// The frame's rows in the order in which they are stored.
std::vector<uint32_t> RowOrder(uint32_t height, bool interlaced) {
  std::vector<uint32_t> rows;
  rows.reserve(height);
  const auto add = [&](uint32_t first, uint32_t step) {
    for (uint32_t y = first; y < height; y += step) rows.push_back(y);
  };
  if (!interlaced) {
    add(0, 1);
    return rows;
  }
  add(0, 8);
  add(4, 8);
  add(2, 4);
  add(1, 2);
  return rows;
}

absl::Status ReadFrame(GifFileType* gif, int transparent, PixelSink& sink) {
  const GifImageDesc& frame = gif->Image;
  const ColorMapObject* colours = frame.ColorMap != nullptr ? frame.ColorMap : gif->SColorMap;
  if (colours == nullptr) return Refused("GIF", "has no palette");
  if (frame.Left < 0 || frame.Top < 0 || frame.Width <= 0 || frame.Height <= 0 ||
      frame.Left > gif->SWidth - frame.Width || frame.Top > gif->SHeight - frame.Height) {
    return Refused("GIF",
                   absl::StrFormat("has a frame of %d x %d at %d, %d outside its canvas of %d x %d",
                                   frame.Width, frame.Height, frame.Left, frame.Top, gif->SWidth,
                                   gif->SHeight));
  }
  std::vector<uint8_t> row(3 * static_cast<size_t>(gif->SWidth), 255);
  for (int y = 0; y < gif->SHeight; ++y) {
    const bool inside = y >= frame.Top && y < frame.Top + frame.Height;
    if (!inside) sink.PutRow(static_cast<uint32_t>(y), row.data());
  }
  std::vector<GifPixelType> line(static_cast<size_t>(frame.Width));
  for (const uint32_t y : RowOrder(static_cast<uint32_t>(frame.Height), frame.Interlace)) {
    if (DGifGetLine(gif, line.data(), frame.Width) == GIF_ERROR) return Damaged(gif->Error);
    for (size_t x = 0; x < line.size(); ++x) {
      uint8_t* pixel = &row[3 * (static_cast<size_t>(frame.Left) + x)];
      GifColorType colour{};
      if (line[x] < colours->ColorCount) colour = colours->Colors[line[x]];
      if (line[x] == transparent) colour = {255, 255, 255};
      pixel[0] = colour.Red;
      pixel[1] = colour.Green;
      pixel[2] = colour.Blue;
    }
    sink.PutRow(static_cast<uint32_t>(frame.Top) + y, row.data());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeGif(std::span<const uint8_t> file, PixelSink& sink) {
  GifSource source{file};
  int error = 0;
  const std::unique_ptr<GifFileType, GifCloser> gif(DGifOpen(&source, ReadBytes, &error));
  if (gif == nullptr) return Damaged(error);
  TANDEM_RETURN_IF_ERROR(sink.Begin(static_cast<uint64_t>(std::max(0, gif->SWidth)),
                                    static_cast<uint64_t>(std::max(0, gif->SHeight)), 1));
  int transparent = NO_TRANSPARENT_COLOR;
  TANDEM_RETURN_IF_ERROR(FindFirstFrame(gif.get(), transparent));
  return ReadFrame(gif.get(), transparent, sink);
}

}  // namespace tandem::image_decoder

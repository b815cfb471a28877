// jpeglib.h needs these first.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/image_decoder/formats/decode.h"
#include "services/image_decoder/formats/exif.h"

namespace tandem::image_decoder {
namespace {

// A progressive file repeats passes over the whole picture; encoders write about ten.
constexpr int kMaxScans = 100;

// Everything that must outlive a jump out of libjpeg.
struct JpegReader {
  jpeg_error_mgr errors;  // the first member: libjpeg hands out its address
  jpeg_decompress_struct jpeg;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = {};
  bool cut_off = false;
  bool too_many_scans = false;
  absl::Status status;
  std::vector<uint8_t> row;      // as libjpeg gives it
  std::vector<uint8_t> rgb_row;  // of a CMYK picture

  ~JpegReader() { jpeg_destroy_decompress(&jpeg); }
};

JpegReader* ReaderOf(j_common_ptr jpeg) { return static_cast<JpegReader*>(jpeg->client_data); }

[[noreturn]] void OnError(j_common_ptr jpeg) {
  JpegReader* reader = ReaderOf(jpeg);
  reader->errors.format_message(jpeg, reader->message);
  std::longjmp(reader->jump, 1);
}

// libjpeg goes on after damage and guesses the rest.  Only what leaves the pixels right passes.
void OnMessage(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  JpegReader* reader = ReaderOf(jpeg);
  switch (reader->errors.msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_TOO_MUCH_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
      return;
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
      reader->cut_off = true;
      break;
    default:
      break;
  }
  OnError(jpeg);
}

void OnOutput(j_common_ptr) {}

void OnProgress(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
  ReaderOf(jpeg)->too_many_scans = true;
  OnError(jpeg);
}

uint32_t OrientationOf(const jpeg_decompress_struct& jpeg) {
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker; marker = marker->next) {
    if (marker->marker != JPEG_APP0 + 1) continue;
    const uint32_t orientation = ExifOrientation({marker->data, marker->data_length});
    if (orientation != 1) return orientation;
  }
  return 1;
}

uint8_t Product255(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return static_cast<uint8_t>(((product >> 8) + product) >> 8);
}

// Adobe's programs store CMYK inverted, and mark it.
void CmykToRgb(const uint8_t* cmyk, bool inverted, std::vector<uint8_t>& rgb) {
  for (size_t i = 0; i < rgb.size(); i += 3, cmyk += 4) {
    const uint32_t light = inverted ? cmyk[3] : 255u - cmyk[3];
    for (size_t c = 0; c < 3; ++c) {
      rgb[i + c] = Product255(inverted ? cmyk[c] : 255u - cmyk[c], light);
    }
  }
}

void SetUp(JpegReader* reader) {
  jpeg_decompress_struct& jpeg = reader->jpeg;
  jpeg.err = jpeg_std_error(&reader->errors);
  reader->errors.error_exit = OnError;
  reader->errors.emit_message = OnMessage;
  reader->errors.output_message = OnOutput;
  jpeg.client_data = reader;
}

// False after a jump out of libjpeg; the reader then holds what it said.
bool ReadRows(JpegReader* reader, std::span<const uint8_t> file, PixelSink* sink) {
  jpeg_decompress_struct& jpeg = reader->jpeg;
  if (setjmp(reader->jump) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg.client_data = reader;
  jpeg_mem_src(&jpeg, file.data(), file.size());
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&jpeg, TRUE);
  reader->status = sink->Begin(jpeg.image_width, jpeg.image_height, OrientationOf(jpeg));
  if (!reader->status.ok()) return true;
  reader->progress.progress_monitor = OnProgress;
  jpeg.progress = &reader->progress;
  const bool cmyk = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&jpeg);
  reader->row.resize(size_t{jpeg.output_width} * jpeg.output_components);
  reader->rgb_row.resize(cmyk ? size_t{3} * jpeg.output_width : 0);
  while (jpeg.output_scanline < jpeg.output_height) {
    const uint32_t y = jpeg.output_scanline;
    JSAMPROW row = reader->row.data();
    jpeg_read_scanlines(&jpeg, &row, 1);
    if (cmyk) CmykToRgb(row, jpeg.saw_Adobe_marker != 0, reader->rgb_row);
    sink->PutRow(y, cmyk ? reader->rgb_row.data() : row);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

}  // namespace

absl::Status DecodeJpeg(std::span<const uint8_t> file, PixelSink& sink) {
  JpegReader reader{};
  SetUp(&reader);
  if (ReadRows(&reader, file, &sink)) return reader.status;
  if (reader.cut_off) return Refused("JPEG", "is cut off");
  if (reader.too_many_scans) {
    return Refused("JPEG", absl::StrFormat("has more than %d scans", kMaxScans));
  }
  return Refused("JPEG", absl::StrFormat("is damaged: %s", std::string(reader.message)));
}

}  // namespace tandem::image_decoder

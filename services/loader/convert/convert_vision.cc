#include "services/loader/convert/convert_vision.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/tensor/format_table.h"
#include "services/common/tensor/quant.h"
#include "services/loader/convert/check_range.h"
#include "services/loader/convert/gguf_header_writer.h"
#include "services/loader/formats/opened_model.h"
#include "services/loader/packing/parallel_for.h"
#include "services/loader/source/weight_mix.h"

namespace tandem::loader {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBf16, DType::kQ8_0};

DType FormatOf(const VisionTensor& tensor, DType type) {
  if (tensor.role == VisionRole::kProjection) {
    return type == DType::kBf16 ? DType::kF32 : type == DType::kQ8_0 ? DType::kF16 : type;
  }
  const bool plain = IsVector(tensor.role) || tensor.role == VisionRole::kPatchWeight ||
                     tensor.role == VisionRole::kPositions;
  if (plain) return DType::kF32;
  return tensor.shape.cols % Traits(type).block_elements == 0 ? type : DType::kF16;
}

std::vector<float> Three(const std::array<float, 3>& values) {
  return {values.begin(), values.end()};
}

void AddMetadata(const VisionConfig& config, const VisionConvertOptions& options,
                 GgufHeaderWriter& header) {
  header.AddString("general.architecture", "clip");
  header.AddString("general.type", "mmproj");
  header.AddString("general.name", options.name);
  header.AddU32("general.file_type", RowOf(options.type).file_type);
  header.AddU32("general.quantization_version", 2);
  header.AddBool("clip.has_vision_encoder", true);
  header.AddString("clip.projector_type", "gemma3");
  header.AddBool("clip.use_gelu", true);
  header.AddU32("clip.vision.image_size", config.image_size);
  header.AddU32("clip.vision.patch_size", config.patch_size);
  header.AddU32("clip.vision.embedding_length", config.hidden_dim);
  header.AddU32("clip.vision.feed_forward_length", config.ffn_dim);
  header.AddU32("clip.vision.block_count", config.num_layers);
  header.AddU32("clip.vision.attention.head_count", config.num_heads);
  header.AddF32("clip.vision.attention.layer_norm_epsilon", config.layer_norm_eps);
  header.AddU32("clip.vision.projection_dim", config.text_hidden_dim);
  header.AddU32("clip.vision.projector.scale_factor", config.pool_size());
  header.AddF32s("clip.vision.image_mean", Three(config.pixels.mean));
  header.AddF32s("clip.vision.image_std", Three(config.pixels.std));
}

// Rows of one tensor.
struct VisionRows {
  size_t tensor = 0;
  uint64_t first_row = 0;
  uint64_t num_rows = 0;
};

class VisionConversion {
 public:
  VisionConversion(const VisionSource& source, const VisionConvertOptions& options)
      : source_(source), options_(options) {
    AddMetadata(source.config, options, header_);
    for (const VisionTensor& tensor : source.tensors) Add(tensor);
    text_ = header_.Build();
  }

  uint64_t file_bytes() const { return text_.size() + header_.data_bytes(); }

  absl::Status Write(const NewFile& file,
                     const std::function<bool(const ConvertProgress&)>& progress) {
    TANDEM_RETURN_IF_ERROR(file.Write(text_.data(), text_.size(), 0));
    const auto report = [&]() -> absl::Status {
      if (progress == nullptr || progress({done_bytes_.load(), file_bytes()})) {
        return absl::OkStatus();
      }
      return absl::CancelledError("stopped");
    };
    TANDEM_RETURN_IF_ERROR(report());  // a small encoder is written before the first tick
    return ParallelFor(
        ThreadCount(options_.num_threads), items_.size(),
        [&](size_t i, int) { return WriteItem(items_[i], file); }, report);
  }

 private:
  void Add(const VisionTensor& tensor) {
    constexpr uint64_t kNumbersPerPiece = 1 << 18;
    const auto [rows, cols] = tensor.shape;
    const DType to = FormatOf(tensor, options_.type);
    header_.AddTensor(GgufVisionName(tensor.role, tensor.layer_idx),
                      {tensor.file_shape.rbegin(), tensor.file_shape.rend()}, to,
                      rows * RowBytes(to, cols));
    const uint64_t step = std::max<uint64_t>(1, kNumbersPerPiece / cols);
    for (uint64_t row = 0; row < rows; row += step) {
      items_.push_back({header_.entries().size() - 1, row, std::min<uint64_t>(step, rows - row)});
    }
  }

  absl::Status WriteItem(const VisionRows& item, const NewFile& file) {
    const VisionTensor& from = source_.tensors[item.tensor];
    const GgufEntry& to = header_.entries()[item.tensor];
    const uint64_t cols = from.shape.cols, out_bytes = RowBytes(to.dtype, cols);
    std::vector<float> numbers(item.num_rows * cols);
    TANDEM_RETURN_IF_ERROR(source_.ReadRows(from, item.first_row, numbers));
    TANDEM_RETURN_IF_ERROR(CheckRange(from.name, to.dtype, numbers, "--mmproj-type"));
    std::vector<std::byte> out(item.num_rows * out_bytes);
    for (uint64_t row = 0; row < item.num_rows; ++row) {
      QuantizeFileRow(to.dtype, std::span(numbers).subspan(row * cols, cols),
                      std::span(out).subspan(row * out_bytes, out_bytes));
    }
    TANDEM_RETURN_IF_ERROR(
        file.Write(out.data(), out.size(), text_.size() + to.offset + item.first_row * out_bytes));
    done_bytes_ += out.size();
    return absl::OkStatus();
  }

  const VisionSource& source_;
  const VisionConvertOptions& options_;
  GgufHeaderWriter header_;
  std::string text_;  // the built header
  std::vector<VisionRows> items_;
  std::atomic<uint64_t> done_bytes_{0};
};

// Preparation's numbers that an mmproj file has no key for.
absl::Status CheckPixels(const VisionConfig& config) {
  constexpr double kRescale = PixelNormalisation().rescale;
  if (config.pixels.rescale == kRescale) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "rescale_factor is %g: an mmproj file can hold no other than 1/255 (%g); --mmproj none "
      "writes the text model alone",
      config.pixels.rescale, kRescale));
}

}  // namespace

absl::StatusOr<NewFile> WriteMmproj(const VisionSource& source, const std::string& path,
                                    const VisionConvertOptions& options,
                                    const std::function<bool(const ConvertProgress&)>& progress) {
  TANDEM_RETURN_IF_ERROR(CheckPixels(source.config));
  VisionConversion conversion(source, options);
  TANDEM_ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path, conversion.file_bytes()));
  TANDEM_RETURN_IF_ERROR(conversion.Write(file, progress));
  TANDEM_ASSIGN_OR_RETURN(const auto written, OpenVisionSource(file.temporary()));
  if (written->config != source.config) {
    return absl::InternalError(absl::StrFormat(
        "%s: the file written describes another encoder than its source; this is a bug", path));
  }
  return file;
}

std::string MmprojBeside(const std::string& model, DType type) {
  namespace fs = std::filesystem;
  const fs::path path(model);
  std::string stem = path.stem().string();
  for (const std::string& format : WeightMixNames()) {
    const std::string lower = absl::AsciiStrToLower(stem);
    if (lower.size() <= format.size() + 1 || !lower.ends_with(format)) continue;
    const char before = lower[lower.size() - format.size() - 1];
    if (before != '.' && before != '-' && before != '_') continue;
    stem.resize(stem.size() - format.size() - 1);
    break;
  }
  const std::string name = absl::AsciiStrToUpper(std::string(Traits(type).name));
  return (path.parent_path() / absl::StrFormat("%s.mmproj-%s.gguf", stem, name)).string();
}

absl::StatusOr<DType> ParseMmprojType(const std::string& name) {
  std::vector<std::string> names;
  for (const DType type : kTypes) {
    if (Traits(type).name == name) return type;
    names.emplace_back(Traits(type).name);
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "'%s' is no type of an mmproj file; there are %s", name, absl::StrJoin(names, ", ")));
}

}  // namespace tandem::loader

#include "services/loader/convert/convert.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/tensor/quant.h"
#include "services/loader/convert/check_range.h"
#include "services/loader/convert/gguf_header_writer.h"
#include "services/loader/convert/gguf_metadata.h"
#include "services/loader/convert/new_file.h"
#include "services/loader/formats/decoder_tensors.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/packing/parallel_for.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kBytesPerItem = 1 << 20;

bool IsQuantised(DType dtype) { return Traits(dtype).block_elements > 1; }

// Rows of one tensor.
struct Item {
  uint32_t tensor = 0;
  uint64_t first_row = 0;
  uint64_t num_rows = 0;
};

// The flag that chooses a matrix's format.
std::string_view FlagOf(const SourceTensor& tensor) {
  const bool vocabulary = tensor.role == WeightRole::kEmbedding || tensor.role == WeightRole::kHead;
  return vocabulary ? "--embedding" : "--type";
}

class Conversion {
 public:
  Conversion(const ModelSource& source, const ConvertOptions& options)
      : source_(source), options_(options) {}

  absl::Status Plan() {
    TANDEM_RETURN_IF_ERROR(AddGgufMetadata(source_, options_.name, options_.mix, header_));
    for (const SourceTensor& tensor : source_.tensors()) {
      TANDEM_RETURN_IF_ERROR(PlanTensor(tensor));
    }
    text_ = header_.Build();
    return absl::OkStatus();
  }

  uint64_t file_bytes() const { return text_.size() + header_.data_bytes(); }
  double bits_per_weight() const {
    return 8.0 * static_cast<double>(header_.data_bytes()) / static_cast<double>(num_weights_);
  }

  absl::Status Write(const NewFile& file,
                     const std::function<bool(const ConvertProgress&)>& progress) {
    TANDEM_RETURN_IF_ERROR(file.Write(text_.data(), text_.size(), 0));
    const int num_threads = ThreadCount(options_.num_threads);
    std::vector<Scratch> scratch(static_cast<size_t>(num_threads));
    const auto report = [&]() -> absl::Status {
      if (progress == nullptr || progress({done_bytes_.load(), file_bytes()})) {
        return absl::OkStatus();
      }
      return absl::CancelledError("stopped");
    };
    return ParallelFor(
        num_threads, items_.size(),
        [&](size_t i, int thread) {
          return WriteItem(items_[i], file, scratch[static_cast<size_t>(thread)]);
        },
        report);
  }

 private:
  struct Scratch {
    std::vector<std::byte> in, out;
    std::vector<float> numbers;
  };

  absl::Status PlanTensor(const SourceTensor& tensor) {
    const bool norm = IsNorm(tensor.role);
    const uint64_t rows = tensor.shape.rows, cols = tensor.shape.cols;
    const DType to = norm ? DType::kF32
                          : options_.mix.FormatOf(tensor.role, tensor.part, tensor.layer_idx,
                                                  source_.config().num_layers, cols);
    if (to != tensor.dtype && IsQuantised(tensor.dtype) && !options_.requantise) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor '%s' is in %s already; --requantise makes it %s, which loses more than the "
          "original weights would",
          tensor.name, std::string(Traits(tensor.dtype).name), std::string(Traits(to).name)));
    }
    if (cols % Traits(to).block_elements != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor '%s' has rows of %d numbers, which %s cannot hold (it has blocks of %d): use "
          "--type f16, bf16 or f32",
          tensor.name, cols, std::string(Traits(to).name), Traits(to).block_elements));
    }
    const auto index = static_cast<uint32_t>(header_.entries().size());
    header_.AddTensor(GgufTensorName(tensor.role, tensor.layer_idx, tensor.part),
                      norm ? std::vector<uint64_t>{cols} : std::vector<uint64_t>{cols, rows}, to,
                      rows * RowBytes(to, cols));
    const uint64_t step = std::max<uint64_t>(1, kBytesPerItem / RowBytes(tensor.dtype, cols));
    for (uint64_t row = 0; row < rows; row += step) {
      items_.push_back({index, row, std::min(step, rows - row)});
    }
    num_weights_ += rows * cols;
    return absl::OkStatus();
  }

  absl::Status WriteItem(const Item& item, const NewFile& file, Scratch& scratch) {
    const SourceTensor& from = source_.tensors()[item.tensor];
    const GgufEntry& to = header_.entries()[item.tensor];
    const uint64_t cols = from.shape.cols;
    const uint64_t in_bytes = RowBytes(from.dtype, cols), out_bytes = RowBytes(to.dtype, cols);
    scratch.in.resize(item.num_rows * in_bytes);
    TANDEM_RETURN_IF_ERROR(source_.Read(from, item.first_row * in_bytes, scratch.in));
    scratch.out.resize(item.num_rows * out_bytes);
    if (from.dtype == to.dtype && from.norm_offset == 0.0f) {
      scratch.out.swap(scratch.in);
    } else {
      scratch.numbers.resize(cols);
      for (uint64_t row = 0; row < item.num_rows; ++row) {
        DequantizeFileRow(from.dtype, std::span(scratch.in).subspan(row * in_bytes, in_bytes),
                          scratch.numbers);
        for (float& number : scratch.numbers) number += from.norm_offset;
        TANDEM_RETURN_IF_ERROR(CheckRange(from.name, to.dtype, scratch.numbers, FlagOf(from)));
        QuantizeFileRow(to.dtype, scratch.numbers,
                        std::span(scratch.out).subspan(row * out_bytes, out_bytes));
      }
    }
    TANDEM_RETURN_IF_ERROR(file.Write(scratch.out.data(), scratch.out.size(),
                                      text_.size() + to.offset + item.first_row * out_bytes));
    done_bytes_ += scratch.out.size();
    return absl::OkStatus();
  }

  const ModelSource& source_;
  const ConvertOptions& options_;
  GgufHeaderWriter header_;
  std::string text_;  // the built header
  std::vector<Item> items_;
  uint64_t num_weights_ = 0;
  std::atomic<uint64_t> done_bytes_{0};
};

// What was written must open, and be the model it was made from.
absl::Status CheckWritten(const ModelSource& source, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const auto written, OpenModelSource(path));
  ModelConfig expected = source.config(), actual = written->config();
  std::sort(expected.stop_token_ids.begin(), expected.stop_token_ids.end());
  std::sort(actual.stop_token_ids.begin(), actual.stop_token_ids.end());
  if (actual != expected) {
    return absl::InternalError(absl::StrFormat(
        "%s: the file written describes another model than its source; this is a bug", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ConvertedFile> ConvertToGguf(
    const ModelSource& source, const std::string& path, const ConvertOptions& options,
    const std::function<bool(const ConvertProgress&)>& progress) {
  struct stat info {};
  if (!options.overwrite && ::lstat(path.c_str(), &info) == 0) {
    return AlreadyThere(path);
  }
  Conversion conversion(source, options);
  TANDEM_RETURN_IF_ERROR(conversion.Plan());
  TANDEM_ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path, conversion.file_bytes()));
  TANDEM_RETURN_IF_ERROR(conversion.Write(file, progress));
  TANDEM_RETURN_IF_ERROR(CheckWritten(source, file.temporary()));
  TANDEM_RETURN_IF_ERROR(file.Publish(options.overwrite));
  return ConvertedFile{conversion.file_bytes(), conversion.bits_per_weight()};
}

}  // namespace tandem::loader

#include "services/loader/convert/convert.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/unique_fd.h"
#include "services/common/tensor/quant.h"
#include "services/loader/convert/gguf_header_writer.h"
#include "services/loader/convert/gguf_metadata.h"
#include "services/loader/formats/decoder_tensors.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/packing/parallel_for.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kBytesPerItem = 1 << 20;

bool IsQuantised(DType dtype) { return Traits(dtype).block_elements > 1; }

absl::Status FileError(const std::string& path, int error) {
  const std::string message = absl::StrFormat("%s: %s", path, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(message);
  }
  return error == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
}

absl::Status AlreadyThere(const std::string& path) {
  return absl::AlreadyExistsError(
      absl::StrFormat("%s is there already: --force replaces it, or choose another name", path));
}

// A new file that is removed again unless it is given its name.
class NewFile {
 public:
  static absl::StatusOr<NewFile> Create(const std::string& path, uint64_t bytes) {
    NewFile file;
    file.temporary_ = absl::StrFormat("%s.%d.part", path, ::getpid());
    file.fd_ = UniqueFd(
        ::open(file.temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file.fd_.valid()) return FileError(file.temporary_, errno);
    // Lack of room is found here and not after an hour's work.
    const int error = ::posix_fallocate(file.fd_.get(), 0, static_cast<off_t>(bytes));
    if (error != 0) return FileError(file.temporary_, error);
    return file;
  }
  NewFile(NewFile&& other) noexcept = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile() {
    if (fd_.valid()) ::unlink(temporary_.c_str());
  }

  const std::string& temporary() const { return temporary_; }

  absl::Status Write(const void* data, uint64_t bytes, uint64_t offset) const {
    const auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::pwrite(fd_.get(), next, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FileError(temporary_, errno);
      next += n;
      offset += static_cast<uint64_t>(n);
      bytes -= static_cast<uint64_t>(n);
    }
    return absl::OkStatus();
  }

  absl::Status Publish(const std::string& path, bool overwrite) {
    if (::fsync(fd_.get()) != 0) return FileError(temporary_, errno);
    // link() refuses to replace, rename() does not ask.
    if (overwrite ? ::rename(temporary_.c_str(), path.c_str()) != 0
                  : ::link(temporary_.c_str(), path.c_str()) != 0) {
      if (errno == EEXIST) return AlreadyThere(path);
      return FileError(path, errno);
    }
    if (overwrite) fd_.Reset();
    return absl::OkStatus();
  }

 private:
  NewFile() = default;
  std::string temporary_;
  UniqueFd fd_;
};

// Rows of one tensor.
struct Item {
  uint32_t tensor = 0;
  uint64_t first_row = 0;
  uint64_t num_rows = 0;
};

absl::Status CheckRange(const SourceTensor& tensor, DType to, std::span<const float> numbers) {
  for (const float number : numbers) {
    const bool fits = std::isfinite(number) && (to == DType::kF32 || to == DType::kBf16 ||
                                                (FloatToHalf(number) & 0x7FFFu) < 0x7C00u);
    if (fits) continue;
    const bool vocabulary =
        tensor.role == WeightRole::kEmbedding || tensor.role == WeightRole::kHead;
    if (!std::isfinite(number)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor '%s' holds %g, which no weight is: the source is damaged, fetch it again",
          tensor.name, number));
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor '%s' holds %g, which does not fit %s (numbers up to 65504): %s bf16 or f32 keeps "
        "it",
        tensor.name, number, std::string(Traits(to).name), vocabulary ? "--embedding" : "--type"));
  }
  return absl::OkStatus();
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
        TANDEM_RETURN_IF_ERROR(CheckRange(from, to.dtype, scratch.numbers));
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
  TANDEM_RETURN_IF_ERROR(file.Publish(path, options.overwrite));
  return ConvertedFile{conversion.file_bytes(), conversion.bits_per_weight()};
}

}  // namespace tandem::loader

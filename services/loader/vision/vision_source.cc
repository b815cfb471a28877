#include "services/loader/vision/vision_source.h"

#include <sys/stat.h>

#include <cerrno>
#include <span>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/tensor/quant.h"
#include "services/loader/formats/gguf.h"
#include "services/loader/formats/gguf_model.h"
#include "services/loader/formats/json.h"
#include "services/loader/formats/model_folder.h"
#include "services/loader/formats/opened_model.h"
#include "services/loader/formats/printable.h"
#include "services/loader/formats/safetensors_files.h"
#include "services/loader/vision/vision_config_reader.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kMaxConfigBytes = 16 << 20;
constexpr size_t kMaxPrinted = 100;

// Null when `name` is optional and absent.
absl::StatusOr<nlohmann::json> ReadJson(const ModelFolder& folder, std::string_view name,
                                        bool required, ContentHash& hash) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                          folder.ReadOptional(name, kMaxConfigBytes));
  if (!text.has_value()) {
    if (!required) return nlohmann::json();
    return absl::NotFoundError(absl::StrFormat("%s is missing", folder.PathOf(name)));
  }
  hash.Add(name);
  hash.Add(*text);
  absl::StatusOr<nlohmann::json> document = ParseJson(*text);
  if (!document.ok()) return InFile(folder.PathOf(name), document.status());
  return document;
}

absl::StatusOr<std::unique_ptr<VisionSource>> OpenFolder(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Open(path));
  ContentHash hash;
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json config, ReadJson(folder, "config.json", true, hash));
  if (!HasVisionConfig(config)) {
    return absl::NotFoundError(absl::StrFormat(
        "%s has no vision_config: the model does not read pictures", folder.PathOf("config.json")));
  }
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json preprocessor,
                          ReadJson(folder, "preprocessor_config.json", false, hash));
  auto source = std::make_unique<VisionSource>();
  source->format = "safetensors";
  source->path = path;
  absl::StatusOr<VisionConfig> vision = ReadVisionConfig(config, preprocessor);
  if (!vision.ok()) return InFile(path, vision.status());
  source->config = *vision;
  TANDEM_ASSIGN_OR_RETURN(SafetensorsFiles files, OpenSafetensorsFiles(folder, hash));
  auto tensors = SelectVisionTensors(source->config, files.tensors, NameStyle::kSafetensors);
  if (!tensors.ok()) return InFile(path, tensors.status());
  source->tensors = *std::move(tensors);
  source->metadata = std::move(files.metadata);
  source->file_names = std::move(files.file_names);
  source->files = std::move(files.files);
  source->content_id = hash.Finish();
  return source;
}

absl::StatusOr<std::unique_ptr<VisionSource>> OpenFile(const std::string& path) {
  absl::StatusOr<FileSource> file = FileSource::Open(path);
  if (!file.ok()) return InFile(path, file.status());
  const absl::StatusOr<GgufHeader> header = ParseGguf(*file);
  if (!header.ok()) return InFile(path, header.status());
  absl::StatusOr<VisionSource> vision = InterpretVisionGguf(*header);
  if (!vision.ok()) return InFile(path, vision.status());
  ContentHash hash;
  const absl::Status hashed = hash.AddFile(*file, header->data_offset);
  if (!hashed.ok()) return InFile(path, hashed);
  auto source = std::make_unique<VisionSource>(*std::move(vision));
  source->path = path;
  source->content_id = hash.Finish();
  source->file_names.push_back(path);
  source->files.push_back(*std::move(file));
  return source;
}

}  // namespace

absl::StatusOr<VisionSource> InterpretVisionGguf(const GgufHeader& header) {
  VisionSource source;
  source.format = "gguf";
  TANDEM_ASSIGN_OR_RETURN(source.config, ReadVisionConfig(header));
  TANDEM_ASSIGN_OR_RETURN(
      source.tensors, SelectVisionTensors(source.config, FileTensorsOf(header), NameStyle::kGguf));
  for (const GgufKey& key : header.keys) {
    source.metadata.emplace_back(Printable(key.name, kMaxPrinted),
                                 PrintGgufValue(key.value, kMaxPrinted));
  }
  return source;
}

absl::StatusOr<std::unique_ptr<VisionSource>> OpenVisionSource(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("a vision encoder's path is empty or holds a NUL character");
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return InFile(path, absl::ErrnoToStatus(errno, "cannot be opened"));
  }
  return S_ISDIR(info.st_mode) ? OpenFolder(path) : OpenFile(path);
}

absl::Status VisionSource::ReadRows(const VisionTensor& tensor, uint64_t first_row,
                                    std::span<float> out) const {
  // Files' rows lie without gaps; only formats of blocks need their rows apart.
  const uint64_t cols = tensor.shape.cols;
  const size_t row_bytes = RowBytes(tensor.dtype, cols);
  if (row_bytes * tensor.shape.rows != tensor.num_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor %s: %d bytes for %d x %d numbers of %s", tensor.name, tensor.num_bytes,
        tensor.shape.rows, cols, std::string(Traits(tensor.dtype).name)));
  }
  std::vector<std::byte> row(row_bytes);
  for (uint64_t r = 0; r < out.size() / cols; ++r) {
    const absl::Status read =
        files[tensor.file].ReadAt(tensor.file_offset + (first_row + r) * row_bytes, row);
    if (!read.ok()) return InFile(file_names[tensor.file], InFile(tensor.name, read));
    DequantizeFileRow(tensor.dtype, row, out.subspan(r * cols, cols));
  }
  for (float& value : out) value += tensor.norm_offset;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> VisionSource::Read(const VisionTensor& tensor) const {
  std::vector<float> values(tensor.shape.rows * tensor.shape.cols);
  TANDEM_RETURN_IF_ERROR(ReadRows(tensor, 0, values));
  return values;
}

absl::StatusOr<VisionWeights> ReadVisionWeights(const VisionSource& source) {
  VisionWeights weights;
  weights.config = source.config;
  for (const VisionTensor& tensor : source.tensors) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<float> values, source.Read(tensor));
    weights.tensors[{tensor.role, tensor.layer_idx}] = std::move(values);
  }
  return weights;
}

absl::Status CheckVisionFits(const VisionSource& source, uint32_t hidden_dim) {
  if (source.config.text_hidden_dim == hidden_dim) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is another model's: its soft tokens have %d numbers, the model's rows %d",
                      source.path, source.config.text_hidden_dim, hidden_dim));
}

}  // namespace tandem::loader

#include "services/npu_worker/attention/kernel_package.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/attention/kernel_abi.h"
#include "services/npu_worker/package/package_files.h"

namespace tandem::npu {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxInstructionBytes = uint64_t{64} << 20;

// Typed access to the manifest, with the place in every error.
class Manifest {
 public:
  Manifest(std::filesystem::path folder, const json& object, std::string place)
      : folder_(std::move(folder)), object_(object), place_(std::move(place)) {}

  absl::StatusOr<std::string> Text(const char* key) const {
    const auto it = object_.find(key);
    if (it == object_.end() || !it->is_string()) return Wrong(key, "a string");
    return it->get<std::string>();
  }
  absl::StatusOr<uint32_t> Number(const char* key, uint32_t max) const {
    const auto it = object_.find(key);
    if (it == object_.end() || !it->is_number_unsigned() || it->get<uint64_t>() > max) {
      return Wrong(key, absl::StrFormat("a number up to %d", max));
    }
    return it->get<uint32_t>();
  }
  absl::StatusOr<std::filesystem::path> File(const char* key) const {
    TANDEM_ASSIGN_OR_RETURN(const std::string name, Text(key));
    const std::filesystem::path path(name);
    if (path != path.filename() || name == "." || name == "..") {
      return Wrong(key, "the name of a file in the package's folder");
    }
    return folder_ / path;
  }
  absl::StatusOr<std::vector<uint32_t>> Instructions() const {
    TANDEM_ASSIGN_OR_RETURN(const auto path, File("instructions"));
    TANDEM_ASSIGN_OR_RETURN(const std::string content, ReadPackageFile(path, kMaxInstructionBytes));
    if (content.size() % sizeof(uint32_t) != 0) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: %d bytes are no whole number of words",
                                                        path.string(), content.size()));
    }
    std::vector<uint32_t> words(content.size() / sizeof(uint32_t));
    std::memcpy(words.data(), content.data(), content.size());
    return words;
  }
  absl::StatusOr<std::vector<Manifest>> List(const char* key) const {
    const auto it = object_.find(key);
    std::vector<Manifest> entries;
    if (it == object_.end()) return entries;
    if (!it->is_array()) return Wrong(key, "a list");
    for (const json& entry : *it) {
      if (!entry.is_object()) return Wrong(key, "a list of objects");
      entries.emplace_back(folder_, entry,
                           absl::StrFormat("%s %s[%d]", place_, key, entries.size()));
    }
    return entries;
  }
  absl::Status Wrong(const char* key, const std::string& expected) const {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: '%s' must be %s", place_, key, expected));
  }

 private:
  std::filesystem::path folder_;
  const json& object_;  // Borrowed.
  std::string place_;
};

absl::StatusOr<DType> ParseDType(const Manifest& entry) {
  TANDEM_ASSIGN_OR_RETURN(const std::string name, entry.Text("weight_format"));
  for (uint32_t i = 0; i < kNumDTypes; ++i) {
    if (name == Traits(static_cast<DType>(i)).name) return static_cast<DType>(i);
  }
  return entry.Wrong("weight_format", "a weight format such as \"q8_0\"");
}

absl::Status ReadAttend(const Manifest& manifest, KernelPackage& package) {
  TANDEM_ASSIGN_OR_RETURN(const auto entries, manifest.List("attend"));
  for (const Manifest& entry : entries) {
    AttendKernel kernel;
    TANDEM_ASSIGN_OR_RETURN(kernel.head_dim, entry.Number("head_dim", 1024));
    TANDEM_ASSIGN_OR_RETURN(kernel.max_positions, entry.Number("max_positions", 1u << 30));
    TANDEM_ASSIGN_OR_RETURN(const std::string kv_format, entry.Text("kv_format"));
    if (kv_format != "f16") return entry.Wrong("kv_format", "\"f16\"");
    TANDEM_ASSIGN_OR_RETURN(kernel.instructions, entry.Instructions());
    package.attend.push_back(std::move(kernel));
  }
  std::ranges::sort(package.attend, [](const AttendKernel& a, const AttendKernel& b) {
    return std::pair(a.head_dim, a.max_positions) < std::pair(b.head_dim, b.max_positions);
  });
  return absl::OkStatus();
}

absl::Status ReadOut(const Manifest& manifest, KernelPackage& package) {
  TANDEM_ASSIGN_OR_RETURN(const auto entries, manifest.List("out"));
  for (const Manifest& entry : entries) {
    OutKernel kernel;
    TANDEM_ASSIGN_OR_RETURN(kernel.weight_dtype, ParseDType(entry));
    TANDEM_ASSIGN_OR_RETURN(kernel.instructions, entry.Instructions());
    package.out.push_back(std::move(kernel));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KernelPackage> KernelPackage::Read(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "manifest.json";
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadPackageFile(path, kMaxManifestBytes));
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: not a JSON object", path.string()));
  }
  const Manifest manifest(folder, object, path.string());
  TANDEM_ASSIGN_OR_RETURN(const std::string format, manifest.Text("format"));
  if (format != "tandem-npu-kernels") return manifest.Wrong("format", "\"tandem-npu-kernels\"");
  TANDEM_ASSIGN_OR_RETURN(const uint32_t version, manifest.Number("abi_version", 1u << 16));
  if (version != kAbiVersion) {
    return manifest.Wrong("abi_version", absl::StrFormat("%d (it is %d)", kAbiVersion, version));
  }
  KernelPackage package;
  TANDEM_ASSIGN_OR_RETURN(package.device, manifest.Text("device"));
  TANDEM_ASSIGN_OR_RETURN(package.kernel_name, manifest.Text("kernel"));
  TANDEM_ASSIGN_OR_RETURN(const auto xclbin, manifest.File("xclbin"));
  package.xclbin_path = xclbin.string();
  const auto emulated = object.find("emulated");
  package.emulated = emulated != object.end() && emulated->is_boolean() && emulated->get<bool>();
  TANDEM_RETURN_IF_ERROR(CheckXclbin(package.xclbin_path));
  TANDEM_RETURN_IF_ERROR(ReadAttend(manifest, package));
  TANDEM_RETURN_IF_ERROR(ReadOut(manifest, package));
  if (package.attend.empty()) return manifest.Wrong("attend", "a list of at least one kernel");
  return package;
}

std::vector<uint32_t> KernelPackage::HeadDims() const {
  std::vector<uint32_t> dims;
  for (const AttendKernel& kernel : attend) {
    if (dims.empty() || dims.back() != kernel.head_dim) dims.push_back(kernel.head_dim);
  }
  return dims;
}

std::vector<DType> KernelPackage::WeightDtypes() const {
  std::vector<DType> dtypes;
  for (const OutKernel& kernel : out) dtypes.push_back(kernel.weight_dtype);
  return dtypes;
}

absl::StatusOr<std::vector<const AttendKernel*>> KernelPackage::AttendBuckets(
    uint32_t head_dim, uint32_t num_positions) const {
  std::vector<const AttendKernel*> buckets;
  for (const AttendKernel& kernel : attend) {
    if (kernel.head_dim != head_dim) continue;
    buckets.push_back(&kernel);
    if (kernel.max_positions >= num_positions) return buckets;
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "the kernel package has attention for head size %d up to %d positions, the model needs %d",
      head_dim, buckets.empty() ? 0 : buckets.back()->max_positions, num_positions));
}

absl::StatusOr<const OutKernel*> KernelPackage::FindOut(DType weight_dtype) const {
  for (const OutKernel& kernel : out) {
    if (kernel.weight_dtype == weight_dtype) return &kernel;
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("the kernel package has no output projection for %s weights",
                      std::string(Traits(weight_dtype).name)));
}

}  // namespace tandem::npu

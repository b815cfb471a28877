#include "services/npu_worker/package/package_reader.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/json/guarded_json.h"
#include "services/npu_worker/package/manifest.h"
#include "services/npu_worker/package/package_files.h"

namespace tandem::npu {
namespace {

constexpr char kFormat[] = "tandem-npu-package";
constexpr uint32_t kVersion = 3;
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 20;
constexpr size_t kMaxOperators = 64;
constexpr uint32_t kFirstDataIndex = 3;  // behind opcode, instructions and their length
constexpr char kWayOut[] =
    "Use a package of version 3 (docs/npu.md); the emulated NPU (--npu=emulate) still takes the "
    "old one";

using Object = ManifestObject;

absl::Status ReadDevice(const Object& entry, NpuOperator& op) {
  TANDEM_ASSIGN_OR_RETURN(op.device, entry.Text("device"));
  uint32_t columns = 0;
  if (op.device == "npu1") {
    op.array.generation = 3;
    columns = 4;
  } else if (op.device == "npu4") {
    op.array.generation = 4;
    columns = 8;
  } else {
    return entry.Wrong("device", "\"npu1\" or \"npu4\"");
  }
  TANDEM_ASSIGN_OR_RETURN(op.array.num_columns, entry.Number("columns", 1, columns));
  return absl::OkStatus();
}

// Cores have bfloat16, and no float16.
absl::Status ReadNumbers(const Object& entry) {
  TANDEM_ASSIGN_OR_RETURN(const std::string numbers, entry.Text("numbers"));
  if (numbers == "bf16") return absl::OkStatus();
  if (numbers == "f16") {
    return entry.Wrong("numbers",
                       "\"bf16\" (it is \"f16\", which no core of an NPU computes with)");
  }
  return entry.Wrong("numbers", "\"bf16\"");
}

absl::Status ReadControl(const Object& entry, NpuOperator& op) {
  TANDEM_ASSIGN_OR_RETURN(const std::string control, entry.Text("control"));
  TANDEM_ASSIGN_OR_RETURN(const Object shapes, entry.Object("shapes"));
  if (control == ControlKindName(ControlKind::kAttention)) {
    op.control = ControlKind::kAttention;
    TANDEM_RETURN_IF_ERROR(shapes.CheckMembers({"head_dim"}));
    TANDEM_ASSIGN_OR_RETURN(op.head_dim, shapes.Number("head_dim", 64, 256));
    if (op.head_dim == 64 || op.head_dim == 128 || op.head_dim == 256) return absl::OkStatus();
    return shapes.Wrong("head_dim", "64, 128 or 256");
  }
  if (control == ControlKindName(ControlKind::kGemm)) {
    op.control = ControlKind::kGemm;
    TANDEM_RETURN_IF_ERROR(shapes.CheckMembers({"weight_format"}));
    TANDEM_ASSIGN_OR_RETURN(const std::string format, shapes.Text("weight_format"));
    for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kBf16}) {
      op.weight_dtype = dtype;
      if (format == Traits(dtype).name) return absl::OkStatus();
    }
    return shapes.Wrong("weight_format", "\"q8_0\", \"q4_0\" or \"bf16\"");
  }
  if (control == ControlKindName(ControlKind::kRows)) {
    op.control = ControlKind::kRows;
    return shapes.CheckMembers({});
  }
  return entry.Wrong("control", "\"attention\", \"gemm\" or \"rows\"");
}

// Absent: instructions.
absl::Status ReadCode(const Object& entry, NpuOperator& op) {
  if (!entry.Has("code")) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::string code, entry.Text("code"));
  if (code != "instructions" && code != "elf") {
    return entry.Wrong("code", "\"instructions\" or \"elf\"");
  }
  op.code = code == "elf" ? CodeForm::kElf : CodeForm::kInstructions;
  return absl::OkStatus();
}

// Each of the builder's buffers once, at the indices from 3 on.
absl::Status ReadArguments(const Object& entry, NpuOperator& op) {
  const std::vector<std::string>& names = ArgumentNames(op.control);
  TANDEM_ASSIGN_OR_RETURN(const auto objects, entry.Objects("arguments", names.size()));
  std::map<std::string, OperatorArgument> by_name;
  std::vector<bool> taken(names.size(), false);
  for (const Object& object : objects) {
    OperatorArgument argument;
    TANDEM_RETURN_IF_ERROR(object.CheckMembers({"name", "index", "group"}));
    TANDEM_ASSIGN_OR_RETURN(argument.name, object.Text("name"));
    const auto last = static_cast<uint32_t>(kFirstDataIndex + names.size() - 1);
    TANDEM_ASSIGN_OR_RETURN(argument.index, object.Number("index", kFirstDataIndex, last));
    TANDEM_ASSIGN_OR_RETURN(argument.group, object.Number("group", 0, 0xFFFF));
    if (taken[argument.index - kFirstDataIndex]) {
      return object.Wrong("index", "another than the arguments before have");
    }
    taken[argument.index - kFirstDataIndex] = true;
    by_name.emplace(argument.name, argument);
  }
  for (const std::string& name : names) {
    const auto it = by_name.find(name);
    if (it == by_name.end()) {
      return entry.Wrong("arguments",
                         absl::StrFormat("the buffers %s, each once", absl::StrJoin(names, ", ")));
    }
    op.arguments.push_back(it->second);
  }
  return absl::OkStatus();
}

absl::Status ReadParameters(const Object& entry, NpuOperator& op) {
  TANDEM_ASSIGN_OR_RETURN(const Object parameters, entry.Object("parameters"));
  TANDEM_RETURN_IF_ERROR(parameters.CheckMembers({"address", "lock", "words"}));
  constexpr uint32_t kLast = kCoreMemoryBytes - kMaxParameters * sizeof(uint32_t);
  TANDEM_ASSIGN_OR_RETURN(op.parameters.address, parameters.Number("address", 0, kLast));
  if (op.parameters.address % sizeof(uint32_t) != 0) {
    return parameters.Wrong("address", "a multiple of 4");
  }
  TANDEM_ASSIGN_OR_RETURN(op.parameters.lock, parameters.Number("lock", 0, kCoreLocks - 1));
  TANDEM_ASSIGN_OR_RETURN(const auto words, parameters.Texts("words", kMaxParameters));
  if (words == ParameterNames(op.control)) return absl::OkStatus();
  return parameters.Wrong(
      "words",
      absl::StrFormat("%s, in this order", absl::StrJoin(ParameterNames(op.control), ", ")));
}

absl::Status ReadOrigin(const Object& entry, NpuOperator& op) {
  TANDEM_ASSIGN_OR_RETURN(const Object origin, entry.Object("provenance"));
  TANDEM_RETURN_IF_ERROR(origin.CheckMembers({"source", "revision", "toolchain"}));
  TANDEM_ASSIGN_OR_RETURN(op.source, origin.Text("source"));
  TANDEM_ASSIGN_OR_RETURN(op.revision, origin.Text("revision"));
  TANDEM_ASSIGN_OR_RETURN(op.toolchain, origin.Text("toolchain"));
  TANDEM_ASSIGN_OR_RETURN(op.licence, entry.Text("licence"));
  return absl::OkStatus();
}

absl::StatusOr<NpuOperator> ReadOperator(const Object& entry, const std::string& folder) {
  NpuOperator op;
  if (entry.Has("elf")) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: an ELF carries finished control code, and here it is made for each "
                        "range: name an xclbin",
                        entry.place()));
  }
  TANDEM_RETURN_IF_ERROR(
      entry.CheckMembers({"name", "control", "device", "columns", "numbers", "xclbin", "kernel",
                          "code", "shapes", "arguments", "parameters", "provenance", "licence"}));
  TANDEM_ASSIGN_OR_RETURN(op.name, entry.Text("name"));
  TANDEM_RETURN_IF_ERROR(ReadDevice(entry, op));
  TANDEM_RETURN_IF_ERROR(ReadNumbers(entry));
  TANDEM_ASSIGN_OR_RETURN(op.kernel_name, entry.Text("kernel"));
  TANDEM_RETURN_IF_ERROR(ReadControl(entry, op));
  TANDEM_RETURN_IF_ERROR(ReadCode(entry, op));
  TANDEM_RETURN_IF_ERROR(ReadArguments(entry, op));
  TANDEM_RETURN_IF_ERROR(ReadParameters(entry, op));
  TANDEM_RETURN_IF_ERROR(ReadOrigin(entry, op));
  TANDEM_ASSIGN_OR_RETURN(const auto xclbin, entry.File("xclbin", folder));
  op.xclbin_path = xclbin.string();
  TANDEM_RETURN_IF_ERROR(CheckXclbin(op.xclbin_path));
  return op;
}

// Two operators for one thing would leave the choice to their order.
absl::Status CheckUnique(const Object& manifest, const std::vector<NpuOperator>& operators) {
  for (size_t i = 0; i < operators.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const NpuOperator &a = operators[j], &b = operators[i];
      const bool same = a.control == b.control && a.head_dim == b.head_dim &&
                        (a.control != ControlKind::kGemm || a.weight_dtype == b.weight_dtype);
      if (!same && a.name != b.name && a.device == b.device) continue;
      return manifest.Wrong(
          "operators",
          absl::StrFormat("of one device, and without doubles: '%s' (%s) and '%s' (%s)",
                          ClientText(a.name), a.device, ClientText(b.name), b.device));
    }
  }
  return absl::OkStatus();
}

// Operators that share an xclbin run in one hardware context: each is a kernel of it, over the same columns.
absl::Status CheckSharedXclbins(const Object& manifest, const std::vector<NpuOperator>& operators) {
  for (size_t i = 0; i < operators.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const NpuOperator &a = operators[j], &b = operators[i];
      if (a.xclbin_path != b.xclbin_path) continue;
      const std::string file = std::filesystem::path(a.xclbin_path).filename().string();
      if (a.kernel_name == b.kernel_name) {
        return manifest.Wrong(
            "operators", absl::StrFormat("a kernel each: '%s' and '%s' are both kernel '%s' of %s",
                                         ClientText(a.name), ClientText(b.name),
                                         ClientText(a.kernel_name), ClientText(file)));
      }
      if (a.array == b.array) continue;
      return manifest.Wrong(
          "operators",
          absl::StrFormat("of as many columns where they share %s: '%s' has %d, '%s' has %d",
                          ClientText(file), ClientText(a.name), a.array.num_columns,
                          ClientText(b.name), b.array.num_columns));
    }
  }
  return absl::OkStatus();
}

// A folder without package.json: a package of the interface before this one, or none at all.
absl::Status NoPackage(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(folder) / "manifest.json", error)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: a kernel package of the interface before version 3 (manifest.json).  Its kernels take "
        "float16 and read block tables (instructions \"TNPI\"), which no core of an NPU can.  %s",
        folder, kWayOut));
  }
  return absl::NotFoundError(absl::StrFormat("no package in %s: it has no package.json", folder));
}

}  // namespace

absl::StatusOr<OperatorPackage> ReadPackage(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "package.json";
  auto text = ReadPackageFile(path, kMaxManifestBytes);
  if (absl::IsNotFound(text.status())) return NoPackage(folder);
  if (!text.ok()) return text.status();
  const auto json = ParseGuardedJson(*text);
  if (!json.ok() || !json->is_object()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s", path.string(),
        json.ok() ? "not a JSON object" : std::string(json.status().message()).c_str()));
  }
  const Object manifest(*json, path.string());
  TANDEM_ASSIGN_OR_RETURN(const std::string format, manifest.Text("format"));
  if (format != kFormat) return manifest.Wrong("format", absl::StrFormat("\"%s\"", kFormat));
  TANDEM_ASSIGN_OR_RETURN(const uint32_t version, manifest.Number("version", 0, 1u << 16));
  if (version != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: a package of version %d, this worker takes %d.  %s", path.string(),
                        version, kVersion, kWayOut));
  }
  TANDEM_RETURN_IF_ERROR(manifest.CheckMembers({"format", "version", "emulated", "operators"}));
  OperatorPackage package{.folder = folder};
  TANDEM_ASSIGN_OR_RETURN(package.emulated, manifest.Flag("emulated"));
  TANDEM_ASSIGN_OR_RETURN(const auto entries, manifest.Objects("operators", kMaxOperators));
  for (const Object& entry : entries) {
    TANDEM_ASSIGN_OR_RETURN(NpuOperator op, ReadOperator(entry, folder));
    package.operators.push_back(std::move(op));
  }
  TANDEM_RETURN_IF_ERROR(CheckUnique(manifest, package.operators));
  TANDEM_RETURN_IF_ERROR(CheckSharedXclbins(manifest, package.operators));
  return package;
}

}  // namespace tandem::npu

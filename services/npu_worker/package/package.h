// A package of NPU operators: a folder with package.json and xclbins (README.md has the format).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"
#include "services/npu_worker/control/code_form.h"
#include "services/npu_worker/control/core_parameters.h"
#include "services/npu_worker/control/transaction.h"

namespace tandem::npu {

// Which builder of control/ makes an operator's control code.
enum class ControlKind : uint8_t { kAttention, kGemm, kRows };
std::string_view ControlKindName(ControlKind kind);

// A data buffer of an operator's kernel.
struct OperatorArgument {
  std::string name;    // as the builder's header names it
  uint32_t index = 0;  // of the kernel's argument; data buffers begin at 3
  uint32_t group = 0;  // id of the memory group that the xclbin connects it to

  // Its number in control code.
  uint32_t buffer() const { return index - 3; }
};

struct NpuOperator {
  std::string name;  // unique in the package
  ControlKind control = ControlKind::kAttention;
  std::string device;                 // "npu1" or "npu4"
  ArrayShape array;                   // of the device; columns as many as the xclbin takes
  uint32_t head_dim = 0;              // kAttention
  DType weight_dtype = DType::kQ8_0;  // kGemm
  std::string xclbin_path;  // operators may share one: they share its hardware context then
  std::string kernel_name;  // unique in the xclbin
  CodeForm code = CodeForm::kInstructions;
  std::vector<OperatorArgument> arguments;  // in the order of ArgumentNames
  ParameterPlace parameters;
  std::string source, revision, toolchain;  // where it comes from
  std::string licence;                      // SPDX identifier

  // REQUIRES a name of ArgumentNames(control).
  const OperatorArgument& argument(std::string_view argument_name) const;
};

// The data buffers of a builder, and the words of its cores' parameters, by name.
const std::vector<std::string>& ArgumentNames(ControlKind kind);
const std::vector<std::string>& ParameterNames(ControlKind kind);

struct OperatorPackage {
  std::string folder;
  bool emulated = false;
  std::vector<NpuOperator> operators;

  // Reads and checks a package.  NOT_FOUND: the folder has none; FAILED_PRECONDITION: one of another
  // version, with its version and the way out; INVALID_ARGUMENT names the file, the place in it and
  // the mistake.
  static absl::StatusOr<OperatorPackage> Read(const std::string& folder);

  // Of the attention operators, ascending.
  std::vector<uint32_t> HeadDims() const;
  // FAILED_PRECONDITION: the package has no attention for such heads.
  absl::StatusOr<const NpuOperator*> FindAttention(uint32_t head_dim) const;
  // The GEMMs' formats of weights.
  std::vector<DType> GemmFormats() const;
  // The GEMM over weights of a format; nullptr: the package has none.
  const NpuOperator* FindGemm(DType weight_dtype) const;
  // The row functions; nullptr: the package has none.
  const NpuOperator* FindRows() const;
  // The devices of the operators, each once, in words.
  std::string Devices() const;
  // FAILED_PRECONDITION: an operator is for another NPU than `device_name`, XRT's name of one.  A name
  // that is not known passes: the self-test decides then.
  absl::Status CheckDevice(std::string_view device_name) const;
};

}  // namespace tandem::npu

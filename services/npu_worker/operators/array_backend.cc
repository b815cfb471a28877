#include "services/npu_worker/operators/array_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/operators/array_plan.h"
#include "services/npu_worker/operators/array_self_test.h"
#include "services/npu_worker/operators/array_weights.h"
#include "services/npu_worker/operators/gemm_self_test.h"
#include "services/npu_worker/operators/list_self_test.h"
#include "services/npu_worker/operators/row_self_test.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<Backend>> ArrayBackend::Create(const std::string& package_folder,
                                                              uint32_t device_index) {
  TANDEM_ASSIGN_OR_RETURN(OperatorPackage package, OperatorPackage::Read(package_folder));
  if (package.HeadDims().empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the package %s has no attention, which this worker runs before any other operator",
        package_folder));
  }
  return std::unique_ptr<Backend>(new ArrayBackend(std::move(package), device_index));
}

absl::StatusOr<std::shared_ptr<NpuKernel>> ArrayBackend::KernelOf(const NpuOperator& op) {
  std::weak_ptr<NpuKernel>& known = kernels_[&op];
  std::shared_ptr<NpuKernel> kernel = known.lock();
  if (kernel != nullptr) return kernel;
  std::weak_ptr<NpuContext>& known_context = contexts_[op.xclbin_path];
  std::shared_ptr<NpuContext> context = known_context.lock();
  if (context == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(
        context, NpuContext::Open({.index = device_index_, .xclbin_path = op.xclbin_path}));
    known_context = context;
  }
  TANDEM_ASSIGN_OR_RETURN(kernel, NpuKernel::Open(std::move(context), op.kernel_name));
  known = kernel;
  return kernel;
}

absl::StatusOr<std::unique_ptr<OperatorTest>> ArrayBackend::MakeTest(const NpuOperator& op) {
  TANDEM_ASSIGN_OR_RETURN(auto kernel, KernelOf(op));
  std::unique_ptr<OperatorTest> test;
  switch (op.control) {
    case ControlKind::kAttention: {
      TANDEM_ASSIGN_OR_RETURN(test, ArraySelfTest::Create(std::move(kernel), op));
      break;
    }
    case ControlKind::kGemm: {
      TANDEM_ASSIGN_OR_RETURN(test, GemmSelfTest::Create(std::move(kernel), op));
      break;
    }
    case ControlKind::kRows: {
      TANDEM_ASSIGN_OR_RETURN(test, RowSelfTest::Create(std::move(kernel), op));
      break;
    }
  }
  return test;
}

absl::Status ArrayBackend::Open(absl::Duration timeout) {
  health_tests_.clear();
  TANDEM_ASSIGN_OR_RETURN(device_name_, NpuContext::NameOf(device_index_));
  TANDEM_RETURN_IF_ERROR(package_.CheckDevice(device_name_));
  const NpuOperator* kept = nullptr;
  std::unique_ptr<OperatorTest> test_of_kept;
  for (const NpuOperator& op : package_.operators) {
    TANDEM_ASSIGN_OR_RETURN(auto test, MakeTest(op));
    TANDEM_RETURN_IF_ERROR(test->Run(timeout));
    // Most plans attend.
    if (kept != nullptr && op.control != ControlKind::kAttention) continue;
    kept = &op;
    test_of_kept = std::move(test);
  }
  TANDEM_RETURN_IF_ERROR(TestList(timeout));
  TANDEM_CHECK(kept != nullptr);
  health_tests_.emplace(kept, std::move(test_of_kept));
  return absl::OkStatus();
}

absl::Status ArrayBackend::TestList(absl::Duration timeout) {
  const NpuOperator* const rows = package_.FindRows();
  if (rows == nullptr) return absl::OkStatus();
  const auto gemm = std::ranges::find_if(package_.operators, [rows](const NpuOperator& op) {
    return op.control == ControlKind::kGemm && op.xclbin_path == rows->xclbin_path;
  });
  if (gemm == package_.operators.end()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(OpenedOperator opened_rows, OpenOperator(*rows));
  TANDEM_ASSIGN_OR_RETURN(OpenedOperator opened_gemm, OpenOperator(*gemm));
  TANDEM_ASSIGN_OR_RETURN(const auto test,
                          ListSelfTest::Create(std::move(opened_rows), std::move(opened_gemm)));
  return test->Run(timeout);
}

absl::Status ArrayBackend::Test(absl::Duration timeout) {
  for (const auto& [op, test] : health_tests_) TANDEM_RETURN_IF_ERROR(test->Run(timeout));
  return absl::OkStatus();
}

void ArrayBackend::CloseUnused() {
  // A test holds its kernel once; plans hold theirs as well.
  const auto is_used = [this](const auto& entry) {
    return kernels_.at(entry.first).use_count() > 1;
  };
  const bool any_used = std::ranges::any_of(health_tests_, is_used);
  const NpuOperator* kept = nullptr;
  for (const auto& [op, test] : health_tests_) {
    if (kept == nullptr || op->control == ControlKind::kAttention) kept = op;
  }
  std::erase_if(health_tests_, [&](const auto& entry) {
    return !is_used(entry) && (any_used || entry.first != kept);
  });
}

void ArrayBackend::Describe(WorkerDescription& description) const {
  description.emulated = package_.emulated;
  description.device =
      package_.emulated
          ? absl::StrFormat("NPU emulated on the host below %s", NpuContext::XrtVersion())
          : absl::StrFormat("%s, operators for %s, %s", device_name_, package_.Devices(),
                            NpuContext::XrtVersion());
  description.takes_pictures = true;
  description.stages = {StageKind::kAttend};
  description.head_dims = package_.HeadDims();
  description.attend_port_dtypes = {DType::kBf16, DType::kF16};
  const std::vector<DType> gemms = package_.GemmFormats();
  if (gemms.empty()) return;
  description.stages.push_back(StageKind::kOut);
  description.matrix_port_dtypes = {DType::kBf16, DType::kF16};
  if (package_.FindRows() != nullptr) {
    description.stages.push_back(StageKind::kQkv);
    description.stages.push_back(StageKind::kFfn);
  }
  if (package_.FindGemm(DType::kBf16) == nullptr) {
    description.weight_dtypes = gemms;
    return;
  }
  // The host makes bfloat16 of any.
  const auto formats = AllDTypes();
  description.weight_dtypes.assign(formats.begin(), formats.end());
}

absl::StatusOr<OpenedOperator> ArrayBackend::OpenOperator(const NpuOperator& op) {
  OpenedOperator opened{.op = &op};
  TANDEM_ASSIGN_OR_RETURN(opened.kernel, KernelOf(op));
  return opened;
}

absl::StatusOr<OpenedGemms> ArrayBackend::OpenGemms(const ModelLoad& load) {
  OpenedGemms gemms;
  const std::vector<DType> formats = package_.GemmFormats();
  if (formats.empty()) return gemms;
  for (const auto& [role, layer_idx] : ArrayPlan::MatricesOf(load)) {
    TANDEM_ASSIGN_OR_RETURN(const auto parts,
                            PartsOf(*load.weights->Find(role, layer_idx), formats));
    for (const MatrixPart& part : parts) {
      if (gemms.contains(part.format)) continue;
      TANDEM_ASSIGN_OR_RETURN(gemms[part.format], OpenOperator(*package_.FindGemm(part.format)));
    }
  }
  return gemms;
}

absl::StatusOr<std::unique_ptr<BackendPlan>> ArrayBackend::Load(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  ArrayPlan::Operators operators;
  if (ArrayPlan::HasStage(load, StageKind::kAttend)) {
    TANDEM_ASSIGN_OR_RETURN(const NpuOperator* const attention,
                            package_.FindAttention(load.weights->config().head_dim));
    TANDEM_ASSIGN_OR_RETURN(operators.attention, OpenOperator(*attention));
  }
  TANDEM_ASSIGN_OR_RETURN(operators.gemms, OpenGemms(load));
  const bool has_norms =
      ArrayPlan::HasStage(load, StageKind::kQkv) || ArrayPlan::HasStage(load, StageKind::kFfn);
  if (const NpuOperator* const rows = package_.FindRows(); has_norms && rows != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(operators.rows, OpenOperator(*rows));
  }
  std::vector<const NpuOperator*> used = {operators.attention.op, operators.rows.op};
  for (const auto& [format, gemm] : operators.gemms) used.push_back(gemm.op);
  TANDEM_ASSIGN_OR_RETURN(auto plan, ArrayPlan::Create(operators, std::move(load), progress));
  std::map<const NpuOperator*, std::unique_ptr<OperatorTest>> tests;
  for (const NpuOperator* const op : used) {
    if (op == nullptr || health_tests_.contains(op)) continue;
    TANDEM_ASSIGN_OR_RETURN(tests[op], MakeTest(*op));
  }
  health_tests_.merge(tests);
  CloseUnused();
  return plan;
}

}  // namespace tandem::npu

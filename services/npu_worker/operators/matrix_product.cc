#include "services/npu_worker/operators/matrix_product.h"

#include <utility>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {
namespace {

absl::StatusOr<std::vector<MatrixPart>> OpenedPartsOf(const OpenedGemms& gemms,
                                                      const PackedTensor& tensor) {
  std::vector<DType> formats;
  for (const auto& [format, gemm] : gemms) formats.push_back(format);
  return PartsOf(tensor, formats);
}

}  // namespace

absl::StatusOr<uint64_t> LayerMatrixBytes(const OpenedGemms& gemms, const PackedTensor& tensor) {
  TANDEM_ASSIGN_OR_RETURN(const auto parts, OpenedPartsOf(gemms, tensor));
  uint64_t bytes = 0;
  for (const MatrixPart& part : parts) {
    bytes += ArrayWeightBytes(part.format, part.num_outputs, tensor.shape.cols);
  }
  return bytes;
}

void LayerMatrix::AddTo(std::vector<CommandUse>& uses) const {
  for (const Part& part : parts) uses.push_back({part.command, &part.weights});
}

absl::StatusOr<std::unique_ptr<MatrixProduct>> MatrixProduct::Create(
    OpenedGemms gemms, const GemmRows::Options& options) {
  TANDEM_CHECK(!gemms.empty() && options.guard_rows == 0);
  std::unique_ptr<MatrixProduct> product(new MatrixProduct(std::move(gemms), options));
  const OpenedOperator& any = product->gemms_.begin()->second;
  TANDEM_ASSIGN_OR_RETURN(product->rows_, GemmRows::Create(*any.kernel, *any.op, options));
  return product;
}

absl::StatusOr<GemmCommand*> MatrixProduct::CommandOf(const MatrixPart& part) {
  std::unique_ptr<GemmCommand>& command = commands_[part];
  if (command == nullptr) {
    const OpenedOperator& gemm = gemms_.at(part.format);
    TANDEM_ASSIGN_OR_RETURN(command, GemmCommand::Create(*gemm.kernel, *gemm.op, rows_, part));
  }
  return command.get();
}

absl::StatusOr<LayerMatrix> MatrixProduct::CopyWeights(const WeightSet& weights,
                                                       const PackedTensor& tensor) {
  TANDEM_CHECK(tensor.shape.rows == options_.num_outputs &&
               tensor.shape.cols == options_.num_inputs);
  TANDEM_ASSIGN_OR_RETURN(const auto parts, OpenedPartsOf(gemms_, tensor));
  LayerMatrix matrix;
  for (const MatrixPart& part : parts) {
    TANDEM_ASSIGN_OR_RETURN(GemmCommand* const command, CommandOf(part));
    TANDEM_ASSIGN_OR_RETURN(NpuBuffer buffer, command->MakeWeights());
    PackArrayWeights(weights, tensor, part, {buffer.data(), buffer.size()});
    TANDEM_RETURN_IF_ERROR(buffer.SyncToDevice(0, buffer.size()));
    matrix.parts.push_back({command, std::move(buffer)});
  }
  return matrix;
}

}  // namespace tandem::npu

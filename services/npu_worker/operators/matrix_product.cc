#include "services/npu_worker/operators/matrix_product.h"

#include <utility>

#include "absl/time/clock.h"
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

absl::StatusOr<std::unique_ptr<MatrixProduct>> MatrixProduct::Create(
    OpenedGemms gemms, const GemmRows::Options& options) {
  TANDEM_CHECK(!gemms.empty() && options.guard_rows == 0);
  std::unique_ptr<MatrixProduct> product(new MatrixProduct(std::move(gemms), options));
  const OpenedOperator& any = product->gemms_.begin()->second;
  TANDEM_ASSIGN_OR_RETURN(product->rows_, GemmRows::Create(*any.device, *any.op, options));
  return product;
}

absl::StatusOr<GemmCommands*> MatrixProduct::CommandsOf(const MatrixPart& part) {
  std::unique_ptr<GemmCommands>& commands = commands_[part];
  if (commands == nullptr) {
    const OpenedOperator& gemm = gemms_.at(part.format);
    TANDEM_ASSIGN_OR_RETURN(commands, GemmCommands::Create(*gemm.device, *gemm.op, rows_, part));
  }
  return commands.get();
}

absl::StatusOr<LayerMatrix> MatrixProduct::CopyWeights(const WeightSet& weights,
                                                       const PackedTensor& tensor) {
  TANDEM_CHECK(tensor.shape.rows == options_.num_outputs &&
               tensor.shape.cols == options_.num_inputs);
  TANDEM_ASSIGN_OR_RETURN(const auto parts, OpenedPartsOf(gemms_, tensor));
  LayerMatrix matrix;
  for (const MatrixPart& part : parts) {
    TANDEM_ASSIGN_OR_RETURN(GemmCommands* const commands, CommandsOf(part));
    TANDEM_ASSIGN_OR_RETURN(NpuBuffer buffer, commands->MakeWeights());
    PackArrayWeights(weights, tensor, part, {buffer.data(), buffer.size()});
    TANDEM_RETURN_IF_ERROR(buffer.SyncToDevice(0, buffer.size()));
    matrix.parts.push_back({commands, std::move(buffer)});
  }
  return matrix;
}

absl::StatusOr<int64_t> MatrixProduct::Execute(const LayerMatrix& matrix, uint32_t num_rows,
                                               absl::Duration timeout) {
  const absl::Time start = absl::Now();
  int64_t ns = 0;
  for (const LayerMatrix::Part& part : matrix.parts) {
    TANDEM_ASSIGN_OR_RETURN(
        const int64_t part_ns,
        part.commands->Execute(part.weights, num_rows, timeout - (absl::Now() - start)));
    ns += part_ns;
  }
  return ns;
}

}  // namespace tandem::npu

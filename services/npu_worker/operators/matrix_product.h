// Rows times a matrix of every layer, on an array: a GEMM for each part of the matrix (array_weights.h).
//
//   output[r, n] = sum_k activations[r, k] * weights[n, k]
//
// Parts are computed in turn, over the same rows.  Layers whose matrices have the same parts share
// their control code.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/weights/weight_set.h"
#include "services/npu_worker/operators/array_weights.h"
#include "services/npu_worker/operators/gemm_command.h"
#include "services/npu_worker/operators/gemm_rows.h"
#include "services/npu_worker/operators/opened_operator.h"
#include "services/npu_worker/operators/stage_commands.h"

namespace tandem::npu {

// A layer's matrix on the array.  Move-only.
struct LayerMatrix {
  struct Part {
    GemmCommand* command = nullptr;  // Borrowed from the MatrixProduct that copied it.
    NpuBuffer weights;
  };
  std::vector<Part> parts;

  // Adds the product's commands, one for each part: over activations that are the device's, into an output
  // that stays there.
  void AddTo(std::vector<CommandUse>& uses) const;
};

// Of the copies of a layer's matrix.  Errors as PartsOf.
absl::StatusOr<uint64_t> LayerMatrixBytes(const OpenedGemms& gemms, const PackedTensor& tensor);

// Single-thread.
class MatrixProduct {
 public:
  // `gemms`: at least one; they stay open as long as this.  Options without guard rows.  Errors as
  // GemmRows::Create.
  static absl::StatusOr<std::unique_ptr<MatrixProduct>> Create(OpenedGemms gemms,
                                                               const GemmRows::Options& options);

  GemmRows& rows() { return rows_; }

  // Copies a layer's matrix, [num_outputs, num_inputs].  Errors as PartsOf and GemmCommand::Create;
  // RESOURCE_EXHAUSTED: memory.
  absl::StatusOr<LayerMatrix> CopyWeights(const WeightSet& weights, const PackedTensor& tensor);

 private:
  MatrixProduct(OpenedGemms gemms, const GemmRows::Options& options)
      : gemms_(std::move(gemms)), options_(options) {}
  absl::StatusOr<GemmCommand*> CommandOf(const MatrixPart& part);

  // Destroyed in the reverse order: what uses a kernel goes before it.
  const OpenedGemms gemms_;
  const GemmRows::Options options_;
  GemmRows rows_;
  std::map<MatrixPart, std::unique_ptr<GemmCommand>> commands_;
};

}  // namespace tandem::npu

// Attention as commands of an array: buffers for rows, instruction buffers, and lists of commands, all
// made before the first step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/control/attention.h"
#include "services/npu_worker/operators/kv_slabs.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_kernel.h"
#include "services/npu_worker/xrt/npu_run.h"

namespace tandem::npu {

// Control code of one KV group's layers in one step.
struct AttentionCode {
  std::vector<Transaction> transactions;
  uint64_t serial = 0;  // differs between codes; 0: no code yet
  bool has_window = false;
};

// Single-thread.
class AttentionCommands {
 public:
  struct Options {
    uint32_t max_rows = 0;
    uint32_t num_heads = 0;
    uint32_t num_kv_heads = 0;
    float scale = 0;
    uint32_t max_positions = 0;  // of a sequence
    uint32_t block_tokens = 0;
  };

  // `kernel`: the operator's.  `kernel` and `op`: borrowed; must outlive this.
  // INVALID_ARGUMENT: the xclbin connects its arguments to other memory groups than the package says;
  // RESOURCE_EXHAUSTED: memory, or the instruction heap; UNIMPLEMENTED: as NpuKernel::MakeCode.
  static absl::StatusOr<std::unique_ptr<AttentionCommands>> Create(NpuKernel& kernel,
                                                                   const NpuOperator& op,
                                                                   const Options& options);

  // Of the step's rows, bfloat16 [max_rows][num_heads][head_dim].
  std::span<uint16_t> queries() { return Numbers(queries_); }
  std::span<uint16_t> output() { return Numbers(output_); }
  // Makes visible to the device what the host wrote to the output.
  absl::Status HandOverOutput() const { return output_.SyncToDevice(0, output_.size()); }

  // Control code for layers with this window, whose slabs have this shape.  The code's old
  // transactions are dropped.  Errors as BuildAttention.
  absl::Status Build(std::span<const AttentionRun> runs, uint32_t window, const SlabShape& slab,
                     AttentionCode& code);
  // Runs the code over the first `num_rows` queries and a layer's slab, and returns nanoseconds on the
  // device, as the host sees them.  The output is the host's afterwards.  Errors as NpuRun::Execute,
  // `timeout` for all commands together.
  absl::StatusOr<int64_t> Execute(const AttentionCode& code, const KvSlab& slab, uint32_t num_rows,
                                  absl::Duration timeout);

  // Which data buffer of the kernel the cache is.
  int cache_index() const { return static_cast<int>(op_.argument("cache").buffer()); }

 private:
  // Commands that reach the device together.  XRT cuts a list where a chain is full.
  static constexpr size_t kMostCommands = 4;
  struct List {
    std::vector<NpuRun> runs;
    std::unique_ptr<NpuRunList> list;
  };
  // Of layers with a window, or of those without: they take turns in a step, and each keeps its code.
  struct Group {
    std::vector<NpuCode> codes;
    std::array<List, kMostCommands> lists;  // [n - 1] has n commands
    uint64_t loaded = 0;                    // AttentionCode::serial of what the codes hold
  };

  AttentionCommands(const NpuOperator& op, const Options& options) : op_(op), options_(options) {}
  static std::span<uint16_t> Numbers(NpuBuffer& buffer) {
    return {reinterpret_cast<uint16_t*>(buffer.data()), buffer.size() / sizeof(uint16_t)};
  }
  absl::StatusOr<Group> MakeGroup(NpuKernel& kernel) const;
  // In the order of the kernel's arguments.
  std::array<const NpuBuffer*, 4> Arguments(const NpuBuffer& cache) const;
  // The transactions of `code` from `first` on, as many as a list takes.
  absl::StatusOr<int64_t> ExecuteBatch(const AttentionCode& code, size_t first, const KvSlab& slab,
                                       absl::Duration timeout);

  const NpuOperator& op_;  // Borrowed.
  const Options options_;
  uint32_t code_bytes_ = 0;  // most of a transaction
  uint64_t last_serial_ = 0;
  NpuBuffer queries_;
  NpuBuffer output_;
  NpuBuffer scratch_;
  std::array<Group, 2> groups_;  // [AttentionCode::has_window]
};

}  // namespace tandem::npu

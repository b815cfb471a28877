#include "services/npu_worker/operators/attention_commands.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/operators/command_code.h"

namespace tandem::npu {
namespace {

// Queries are read so far beyond a run's last one.
constexpr uint32_t kRowsBeyond = 64;
// Enough for most steps; control code that is longer becomes several commands.
constexpr uint64_t kUsualCodeBytes = uint64_t{256} << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionCommands>> AttentionCommands::Create(
    NpuKernel& kernel, const NpuOperator& op, const Options& options) {
  std::unique_ptr<AttentionCommands> commands(new AttentionCommands(op, options));
  TANDEM_RETURN_IF_ERROR(CheckMemoryGroups(kernel, op));
  const uint64_t head_bytes = op.head_dim * sizeof(uint16_t);
  const uint64_t row_bytes = options.num_heads * head_bytes;
  const auto allocate = [&](const char* name, uint64_t bytes) {
    return kernel.Allocate(static_cast<int>(op.argument(name).buffer()), bytes);
  };
  TANDEM_ASSIGN_OR_RETURN(commands->queries_,
                          allocate("queries", (options.max_rows + kRowsBeyond) * row_bytes));
  TANDEM_ASSIGN_OR_RETURN(commands->output_, allocate("output", options.max_rows * row_bytes));
  TANDEM_ASSIGN_OR_RETURN(commands->scratch_, allocate("scratch", kRowsBeyond * head_bytes));
  const uint64_t code_bytes = std::max(
      kUsualCodeBytes,
      AttentionCodeBytes(uint64_t{options.max_positions} + options.max_rows, options.block_tokens));
  commands->code_bytes_ = static_cast<uint32_t>(std::min<uint64_t>(code_bytes, ~0u));
  for (Group& group : commands->groups_) {
    TANDEM_ASSIGN_OR_RETURN(group, commands->MakeGroup(kernel));
  }
  return commands;
}

absl::StatusOr<AttentionCommands::Group> AttentionCommands::MakeGroup(NpuKernel& kernel) const {
  Group group;
  for (size_t i = 0; i < kMostCommands; ++i) {
    TANDEM_ASSIGN_OR_RETURN(NpuCode code,
                            kernel.MakeCode(op_.code, code_bytes_ / sizeof(uint32_t)));
    group.codes.push_back(std::move(code));
  }
  // A run belongs to one list.
  for (size_t n = 1; n <= kMostCommands; ++n) {
    List& list = group.lists[n - 1];
    for (size_t i = 0; i < n; ++i) {
      TANDEM_ASSIGN_OR_RETURN(NpuRun run, kernel.MakeRun());
      list.runs.push_back(std::move(run));
    }
    std::vector<NpuRun*> runs;
    for (NpuRun& run : list.runs) runs.push_back(&run);
    TANDEM_ASSIGN_OR_RETURN(NpuRunList made, kernel.context().MakeRunList(runs));
    list.list = std::make_unique<NpuRunList>(std::move(made));
  }
  return group;
}

std::array<const NpuBuffer*, 4> AttentionCommands::Arguments(const NpuBuffer& cache) const {
  std::array<const NpuBuffer*, 4> buffers{};
  const std::pair<const char*, const NpuBuffer*> by_name[] = {
      {"queries", &queries_}, {"cache", &cache}, {"output", &output_}, {"scratch", &scratch_}};
  for (const auto& [name, buffer] : by_name) buffers[op_.argument(name).buffer()] = buffer;
  return buffers;
}

absl::Status AttentionCommands::Build(std::span<const AttentionRun> runs, uint32_t window,
                                      const SlabShape& slab, AttentionCode& code) {
  const AttentionJob job = {.array = op_.array,
                            .parameters = op_.parameters,
                            .head_dim = op_.head_dim,
                            .num_heads = options_.num_heads,
                            .num_kv_heads = options_.num_kv_heads,
                            .window = window,
                            .scale = options_.scale,
                            .cache_slots = static_cast<uint32_t>(slab.num_slots),
                            .queries = {.argument = op_.argument("queries").buffer()},
                            .keys = {.argument = op_.argument("cache").buffer()},
                            .values = {.argument = op_.argument("cache").buffer(),
                                       .offset = static_cast<uint32_t>(slab.value_offset())},
                            .output = {.argument = op_.argument("output").buffer()},
                            .scratch = {.argument = op_.argument("scratch").buffer()}};
  code.transactions.clear();
  code.serial = 0;
  TANDEM_RETURN_IF_ERROR(BuildAttention(job, runs, code_bytes_, code.transactions));
  code.serial = ++last_serial_;
  code.has_window = window != 0;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> AttentionCommands::ExecuteBatch(const AttentionCode& code, size_t first,
                                                        const KvSlab& slab,
                                                        absl::Duration timeout) {
  const size_t count = std::min(kMostCommands, code.transactions.size() - first);
  const auto batch = std::span(code.transactions).subspan(first, count);
  Group& group = groups_[code.has_window ? 1 : 0];
  // The layers of a group have the same code.
  const bool is_all = count == code.transactions.size();
  if (!is_all || group.loaded != code.serial) {
    group.loaded = 0;
    for (size_t i = 0; i < count; ++i) {
      TANDEM_RETURN_IF_ERROR(group.codes[i].Load(batch[i].words()));
    }
    if (is_all) group.loaded = code.serial;
  }
  List& list = group.lists[count - 1];
  const auto arguments = Arguments(slab.buffer());
  for (size_t i = 0; i < count; ++i) {
    TANDEM_RETURN_IF_ERROR(list.runs[i].SetArguments(group.codes[i], arguments));
  }
  std::array<int64_t, kMostCommands> run_ns{};
  TANDEM_RETURN_IF_ERROR(list.list->Execute(timeout, std::span(run_ns).first(count)));
  return std::reduce(run_ns.begin(), run_ns.end());
}

absl::StatusOr<int64_t> AttentionCommands::Execute(const AttentionCode& code, const KvSlab& slab,
                                                   uint32_t num_rows, absl::Duration timeout) {
  TANDEM_CHECK(code.serial != 0 && num_rows <= options_.max_rows);
  const size_t row_bytes = size_t{options_.num_heads} * op_.head_dim * sizeof(uint16_t);
  const absl::Time start = absl::Now();
  TANDEM_RETURN_IF_ERROR(queries_.SyncToDevice(0, num_rows * row_bytes));
  int64_t ns = 0;
  for (size_t i = 0; i < code.transactions.size(); i += kMostCommands) {
    const absl::Duration left = i == 0 ? timeout : timeout - (absl::Now() - start);
    TANDEM_ASSIGN_OR_RETURN(const int64_t batch_ns, ExecuteBatch(code, i, slab, left));
    ns += batch_ns;
  }
  TANDEM_RETURN_IF_ERROR(output_.SyncFromDevice(0, num_rows * row_bytes));
  return ns;
}

}  // namespace tandem::npu

#include "services/gateway/executor/placement_trial.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/step/kv_copy.h"
#include "services/common/step/step_batch.h"
#include "services/gateway/executor/step_power.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kPromptRows = 256;  // of a part; what fills most devices
constexpr uint32_t kCandidates = 64;   // of an output, as samplers ask for
constexpr int kPromptSteps = 2;        // measured, after one that warms up
constexpr int kDecodeSteps = 4;
constexpr int kFullSteps = 3;
constexpr int kKvCopies = 2;
// Power is a mean of about a second: until it is of these steps alone, and then while it is read.
constexpr absl::Duration kPowerSettles = absl::Milliseconds(1200);
constexpr absl::Duration kPowerIsRead = absl::Milliseconds(800);
// By then a worker has a first reading, if it has any.
constexpr absl::Duration kPowerAppears = absl::Milliseconds(500);
// No request's: they count from 1.
constexpr uint64_t kFirstStep = uint64_t{1} << 62;

// Makes steps.  Their sequences all see the blocks of the first rows, again and again up to the depth
// that is wanted, and write to blocks of their own: one part of a prompt is enough for any depth.
class TrialSteps {
 public:
  explicit TrialSteps(const StepLimits& limits) : limits_(limits) {}

  // The first rows of a prompt, in the blocks that later steps read.
  void MakeFirst(uint32_t rows) {
    filling_ = true;
    Make(1, 0, rows, false);
    filling_ = false;
    filled_blocks_ = std::max(1u, rows / limits_.block_tokens);
  }
  // `rows` rows from position `first` on of each of `sequences`; `outputs`: for every row.
  void Make(uint32_t sequences, uint32_t first, uint32_t rows, bool outputs) {
    rows_.clear();
    sequences_.clear();
    outputs_.clear();
    table_.clear();
    for (uint32_t s = 0; s < sequences; ++s) {
      SequenceEntry sequence{.first_row = static_cast<uint32_t>(rows_.size()), .num_rows = rows};
      for (uint32_t r = 0; r < rows; ++r) {
        const auto row = static_cast<uint32_t>(rows_.size());
        rows_.push_back({.token = Token(row), .position = first + r, .sequence = s});
        if (outputs) outputs_.push_back({.row = row});
      }
      for (uint32_t group = 0; group < kNumKvGroups; ++group) {
        sequence.table_offset[group] = static_cast<uint32_t>(table_.size());
        AddTable(group, s, first, rows);
      }
      sequences_.push_back(sequence);
    }
  }

  StepBatch Batch(uint64_t step_id) const {
    StepBatch batch;
    batch.rows = rows_;
    batch.sequences = sequences_;
    batch.outputs = outputs_;
    batch.block_table = table_;
    batch.header.num_rows = static_cast<uint32_t>(rows_.size());
    batch.header.num_sequences = static_cast<uint32_t>(sequences_.size());
    batch.header.num_outputs = static_cast<uint32_t>(outputs_.size());
    batch.header.table_len = static_cast<uint32_t>(table_.size());
    batch.header.num_candidates = std::min(kCandidates, limits_.vocab_size);
    batch.header.step_id = step_id;
    return batch;
  }

 private:
  uint32_t Token(uint32_t row) const { return (row * 7919 + 101) % limits_.vocab_size; }

  // Blocks from 0 on are read; those that rows lie in are a sequence's own, from the pool's end.
  void AddTable(uint32_t group, uint32_t sequence, uint32_t first, uint32_t rows) {
    const uint32_t block = limits_.block_tokens;
    const uint32_t last = (first + rows - 1) / block;
    const uint32_t written = first / block;
    const uint32_t own = last - written + 1;
    const uint32_t own_end = limits_.num_blocks[group] - sequence * own;
    const uint32_t seen =
        group == kWindowGroup ? FirstWindowBlock(first, limits_.sliding_window, block) : 0;
    for (uint32_t b = 0; b <= last; ++b) {
      if (b >= written) {
        table_.push_back(filling_ ? b : own_end - 1 - (b - written));
      } else {
        table_.push_back(b < seen ? kNoBlock : b % filled_blocks_);
      }
    }
  }

  const StepLimits& limits_;
  bool filling_ = false;
  uint32_t filled_blocks_ = 1;
  std::vector<RowEntry> rows_;
  std::vector<SequenceEntry> sequences_;
  std::vector<OutputEntry> outputs_;
  std::vector<uint32_t> table_;
};

class Trial {
 public:
  Trial(Executor& executor, bool with_power)
      : executor_(executor), with_power_(with_power), steps_(executor.limits()) {}

  absl::StatusOr<PlacementCosts> Run(const ReferenceLoad& load) {
    const StepLimits& limits = executor_.limits();
    const uint32_t block = limits.block_tokens;
    PlacementCosts costs;
    costs.prompt_rows = std::min({kPromptRows, limits.max_rows, limits.context_len});
    costs.depth = load.prompt_tokens / block * block;
    costs.streams = Streams();
    const uint32_t middle = std::min(costs.depth / 2, limits.context_len - costs.prompt_rows);
    steps_.MakeFirst(costs.prompt_rows);
    TANDEM_RETURN_IF_ERROR(RunStep().status());
    steps_.Make(1, PromptStart(middle / block * block, costs.prompt_rows), costs.prompt_rows,
                false);
    TANDEM_ASSIGN_OR_RETURN(costs.prompt, Measure(kPromptSteps));
    steps_.Make(1, costs.depth, 1, true);
    TANDEM_ASSIGN_OR_RETURN(costs.lone, Measure(kDecodeSteps));
    steps_.Make(costs.streams, costs.depth, 1, true);
    TANDEM_ASSIGN_OR_RETURN(costs.full, Measure(kFullSteps));
    return costs;
  }

 private:
  // Sequences that the limits hold with a block of their own and tables as deep as the load.
  uint32_t Streams() const {
    const StepLimits& limits = executor_.limits();
    const uint32_t pool =
        std::min(limits.num_blocks[kGlobalGroup], limits.num_blocks[kWindowGroup]);
    return std::max(
        1u, std::min({limits.max_sequences, limits.max_rows, limits.max_outputs, pool / 2}));
  }
  // 0 where the pools do not hold a part of a prompt beside the blocks it reads.
  uint32_t PromptStart(uint32_t first, uint32_t rows) const {
    const StepLimits& limits = executor_.limits();
    const uint32_t blocks = (rows + limits.block_tokens - 1) / limits.block_tokens;
    const uint32_t pool =
        std::min(limits.num_blocks[kGlobalGroup], limits.num_blocks[kWindowGroup]);
    return pool >= 2 * blocks ? first : 0;
  }

  // The shortest of so many, after one that warms up; with the power.
  absl::StatusOr<StepSeconds> Measure(int num_steps) {
    TANDEM_RETURN_IF_ERROR(RunStep().status());
    StepSeconds shortest;
    for (int i = 0; i < num_steps; ++i) {
      TANDEM_ASSIGN_OR_RETURN(const auto timings, RunStep());
      StepSeconds seconds = SecondsOf(executor_.plan(), timings);
      if (i == 0 || seconds.Total() < shortest.Total()) shortest = std::move(seconds);
    }
    if (with_power_) {
      TANDEM_ASSIGN_OR_RETURN(shortest.watts, Watts());
    }
    return shortest;
  }

  // The mean power of each worker while such steps run.
  absl::StatusOr<std::vector<double>> Watts() {
    TANDEM_RETURN_IF_ERROR(ReadPower(kPowerAppears).status());
    // Of a worker without a sensor, the power says nothing however long it is read.
    TANDEM_ASSIGN_OR_RETURN(const MeanPower first, ReadPower(absl::ZeroDuration()));
    if (!first.readable()) return first.Watts();
    TANDEM_RETURN_IF_ERROR(ReadPower(kPowerSettles - kPowerAppears).status());
    TANDEM_ASSIGN_OR_RETURN(const MeanPower mean, ReadPower(kPowerIsRead));
    return mean.Watts();
  }

  // Runs steps for so long, one at least.
  absl::StatusOr<MeanPower> ReadPower(absl::Duration time) {
    MeanPower power(executor_.plan());
    const absl::Time end = absl::Now() + time;
    do {
      TANDEM_ASSIGN_OR_RETURN(const auto timings, RunStep());
      power.Add(timings);
    } while (absl::Now() < end);
    return power;
  }

  absl::StatusOr<std::vector<SegmentTiming>> RunStep() {
    const uint64_t step_id = next_step_++;
    WriteStep(steps_.Batch(step_id), executor_.StepArea(0));
    executor_.Submit({.step_id = step_id});
    return executor_.Wait();
  }

  Executor& executor_;
  const bool with_power_;
  TrialSteps steps_;
  uint64_t next_step_ = kFirstStep;
};

}  // namespace

std::optional<StepShape> ShapeOf(const StepBatch& step, bool overlaps) {
  if (step.rows.empty() || !step.pictures.empty() || step.header.want_logits != 0) return {};
  const bool decodes = step.outputs.size() == step.rows.size();
  if (!decodes && (step.sequences.size() != 1 || step.outputs.size() > 1)) return {};
  uint64_t positions = 0;
  for (const RowEntry& row : step.rows) positions += row.position;
  return StepShape{.decodes = decodes,
                   .rows = static_cast<uint32_t>(step.rows.size()),
                   .depth = static_cast<uint32_t>(positions / step.rows.size()),
                   .overlaps = overlaps};
}

StepSeconds SecondsOf(const Plan& plan, std::span<const SegmentTiming> timings) {
  StepSeconds seconds{.device = std::vector<double>(plan.workers.size())};
  for (const SegmentTiming& timing : timings) {
    const double device = 1e-9 * static_cast<double>(timing.device_ns);
    seconds.device[plan.segments[timing.segment_index].worker] += device;
    seconds.other += std::max(0.0, absl::ToDoubleSeconds(timing.round_trip) - device);
  }
  return seconds;
}

ReferenceLoad LoadWithin(const StepLimits& limits, bool many_streams) {
  ReferenceLoad load;
  load.prompt_tokens = std::min(load.prompt_tokens, limits.context_len / 2);
  load.answer_tokens = std::min(load.answer_tokens, std::max(1u, limits.context_len / 4));
  load.chunk_rows = limits.max_rows;
  if (many_streams) load.streams = limits.max_sequences;
  return load;
}

absl::StatusOr<PlacementCosts> TryPlacement(Executor& executor, const ReferenceLoad& load,
                                            bool with_power) {
  return Trial(executor, with_power).Run(load);
}

absl::StatusOr<double> TimeKvCopy(Executor& executor, uint32_t rows, bool write) {
  const StepLimits& limits = executor.limits();
  const KvCopyLayout layout(executor.config(), limits);
  const uint64_t block_bytes = layout.BlockBytes(kGlobalGroup) + layout.BlockBytes(kWindowGroup);
  if (executor.KvArea().empty() || block_bytes == 0) {
    return absl::FailedPreconditionError("the workers copy no KV");
  }
  const uint32_t needed = (rows + limits.block_tokens - 1) / limits.block_tokens;
  const auto at_once = static_cast<uint32_t>(
      std::min<uint64_t>({executor.KvArea().size() / block_bytes, limits.num_blocks[kGlobalGroup],
                          limits.num_blocks[kWindowGroup], needed}));
  std::vector<uint32_t> blocks(std::max(at_once, 1u));
  std::iota(blocks.begin(), blocks.end(), 0u);
  const KvCopy copy{.write = write, .blocks = {blocks, blocks}};
  double shortest = 0.0;
  for (int i = 0; i < kKvCopies; ++i) {
    const absl::Time began = absl::Now();
    TANDEM_RETURN_IF_ERROR(executor.CopyKv(copy));
    const double seconds = absl::ToDoubleSeconds(absl::Now() - began);
    if (i == 0 || seconds < shortest) shortest = seconds;
  }
  return shortest * needed / static_cast<double>(blocks.size());
}

}  // namespace tandem::gateway

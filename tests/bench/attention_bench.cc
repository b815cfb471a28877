// Times attention alone on a device: decode of many sequences at a depth, and chunks of a prompt.
//
//   attention_bench [--heads 32 --kv-heads 16 --head-dim 128 --window 1024] [--kv-type q8_0]
//   [--sweep]
//
// Launches follow one another with a barrier each, as they do in a step, and go round over caches
// that together exceed the device's own caches.  --sweep tries shapes of decode.comp.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/tensor/kv_format.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/vulkan/instance.h"
#include "services/gpu_worker/vulkan/query_pool.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {
namespace {

using vulkan::Buffer;
using vulkan::MemoryKind;

constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kHalf = 0x2E662E66;  // two float16 of 0.1

struct Options {
  std::string device;
  uint32_t heads = 32, kv_heads = 16, head_dim = 128, window = 1024, repeats = 60;
  DType kv_dtype = DType::kF16;
  bool sweep = false;
};

class Bench {
 public:
  explicit Bench(const Options& options) : o_(options) {}

  absl::Status Open() {
    TANDEM_ASSIGN_OR_RETURN(instance_, vulkan::Instance::Create({}));
    TANDEM_ASSIGN_OR_RETURN(const size_t index,
                            vulkan::ChooseDevice(instance_->devices(), o_.device));
    TANDEM_ASSIGN_OR_RETURN(device_, vulkan::Device::Create(*instance_, index));
    TANDEM_ASSIGN_OR_RETURN(timeline_, vulkan::Timeline::Create(*device_));
    TANDEM_ASSIGN_OR_RETURN(kernels_, KernelSet::Create(*device_, ""));
    TANDEM_ASSIGN_OR_RETURN(timestamps_, vulkan::TimestampPool::Create(*device_, 2));
    std::printf("%s", vulkan::DescribeDevice(device_->info()).c_str());
    return absl::OkStatus();
  }
  Tuning& tuning() { return kernels_->tuning(); }

  // Prepares `sequences` rows at the end of `depth` positions, or `rows` of one sequence there.
  absl::Status Prepare(uint32_t sequences, uint32_t depth, uint32_t rows) {
    const uint32_t blocks = (depth + kBlockTokens - 1) / kBlockTokens;
    StepBatch batch;
    std::vector<RowEntry> row_entries;
    std::vector<SequenceEntry> entries;
    std::vector<uint32_t> table;
    for (uint32_t s = 0; s < sequences; ++s) {
      entries.push_back({static_cast<uint32_t>(row_entries.size()), rows, {}});
      entries.back().table_offset[0] = entries.back().table_offset[1] =
          static_cast<uint32_t>(table.size());
      for (uint32_t r = 0; r < rows; ++r) row_entries.push_back({0, depth - rows + r, s, 0});
      // Blocks of the sequences alternate.
      for (uint32_t b = 0; b < blocks; ++b) table.push_back(b * sequences + s);
    }
    num_rows_ = sequences * rows;
    batch.header.num_rows = num_rows_;
    batch.header.num_sequences = sequences;
    batch.header.table_len = static_cast<uint32_t>(table.size());
    batch.rows = row_entries;
    batch.sequences = entries;
    batch.block_table = table;
    const AttentionStepLayout layout({.max_rows = num_rows_},
                                     TileRulesOf(tuning(), o_.heads, o_.kv_heads, o_.head_dim));
    tiles_at_ = layout.tiles;
    const auto make = [this](Buffer& buffer, uint64_t bytes, MemoryKind kind) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(buffer, Buffer::Allocate(*device_, bytes, kind, "bench"));
      return absl::OkStatus();
    };
    TANDEM_RETURN_IF_ERROR(make(step_, StepBytes(batch.header), MemoryKind::kUpload));
    TANDEM_RETURN_IF_ERROR(make(attention_, layout.bytes, MemoryKind::kUpload));
    WriteStep(batch, step_.mapped());
    WriteAttentionStep(batch, layout, attention_.mapped());
    const uint64_t qkv_dim = uint64_t{o_.heads + 2 * o_.kv_heads} * o_.head_dim;
    TANDEM_RETURN_IF_ERROR(make(qkv_, num_rows_ * qkv_dim * 4, MemoryKind::kDevice));
    TANDEM_RETURN_IF_ERROR(
        make(out_, uint64_t{num_rows_} * o_.heads * o_.head_dim * 2, MemoryKind::kDevice));
    TANDEM_RETURN_IF_ERROR(make(weight_, o_.head_dim * 4, MemoryKind::kDevice));
    TANDEM_RETURN_IF_ERROR(
        make(rotation_, uint64_t{257 + depth / 256} * o_.head_dim * 4, MemoryKind::kDevice));
    const uint64_t cache_bytes = uint64_t{blocks} * sequences * o_.kv_heads *
                                 KvPageBytes(o_.kv_dtype, kBlockTokens, o_.head_dim);
    const auto num_caches =
        static_cast<size_t>(std::clamp<uint64_t>((uint64_t{256} << 20) / (2 * cache_bytes), 1, 62));
    std::vector<const Buffer*> filled = {&qkv_, &weight_, &rotation_};
    k_.clear();
    v_.clear();
    k_.resize(num_caches);
    v_.resize(num_caches);
    for (size_t i = 0; i < num_caches; ++i) {
      TANDEM_RETURN_IF_ERROR(make(k_[i], cache_bytes, MemoryKind::kDevice));
      TANDEM_RETURN_IF_ERROR(make(v_[i], cache_bytes, MemoryKind::kDevice));
      filled.push_back(&k_[i]);
      filled.push_back(&v_[i]);
    }
    return Fill(filled, kHalf);
  }

  // Microseconds of one launch for what was prepared.
  absl::StatusOr<double> TimeDecode(uint32_t window) {
    const DecodeShape shape = MakeDecodeShape(tuning(), o_.heads, o_.kv_heads, o_.head_dim);
    TANDEM_ASSIGN_OR_RETURN(partials_,
                            Buffer::Allocate(*device_, num_rows_ * shape.PartialBytes(o_.head_dim),
                                             MemoryKind::kDevice, "bench"));
    TANDEM_ASSIGN_OR_RETURN(counters_, Buffer::Allocate(*device_, num_rows_ * shape.parts * 4,
                                                        MemoryKind::kDevice, "bench"));
    TANDEM_RETURN_IF_ERROR(Fill({&counters_}, 0));
    return Time([&](size_t cache) {
      return DecodeLaunch(tuning(), {.push = {.step = step_.address(),
                                              .rows = attention_.address(),
                                              .q = qkv_.address(),
                                              .k_cache = k_[cache].address(),
                                              .v_cache = v_[cache].address(),
                                              .destination = out_.address(),
                                              .partials = partials_.address(),
                                              .counters = counters_.address(),
                                              .q_weight = weight_.address(),
                                              .k_weight = weight_.address(),
                                              .rotation = rotation_.address(),
                                              .num_heads = o_.heads,
                                              .num_kv_heads = o_.kv_heads,
                                              .group = kGlobalGroup,
                                              .window = window,
                                              .scale = 0.1f,
                                              .epsilon = 1e-6f},
                                     .head_dim = o_.head_dim,
                                     .block_tokens = kBlockTokens,
                                     .kv_dtype = o_.kv_dtype,
                                     .fused = true,
                                     .max_rows = num_rows_});
    });
  }
  absl::StatusOr<double> TimeTiles(uint32_t window) {
    return Time([&](size_t cache) {
      return TiledLaunch(tuning(), {.push = {.step = step_.address(),
                                             .rows = attention_.address(),
                                             .tiles = attention_.address() + tiles_at_,
                                             .q = qkv_.address(),
                                             .k_cache = k_[cache].address(),
                                             .v_cache = v_[cache].address(),
                                             .destination = out_.address(),
                                             .num_heads = o_.heads,
                                             .num_kv_heads = o_.kv_heads,
                                             .group = kGlobalGroup,
                                             .window = window,
                                             .scale = 0.1f},
                                    .head_dim = o_.head_dim,
                                    .block_tokens = kBlockTokens,
                                    .kv_dtype = o_.kv_dtype,
                                    .max_rows = num_rows_});
    });
  }

 private:
  absl::Status Submit(vulkan::Recorder& recorder) {
    TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
    return timeline_->SubmitAndWait({&commands, 1}, absl::Minutes(1));
  }
  absl::Status Fill(const std::vector<const Buffer*>& buffers, uint32_t word) {
    TANDEM_ASSIGN_OR_RETURN(const auto pool, vulkan::CommandPool::Create(*device_));
    TANDEM_ASSIGN_OR_RETURN(auto recorder, vulkan::Recorder::Begin(pool, kernels_->layout()));
    for (const Buffer* buffer : buffers) recorder.Fill(*buffer, word);
    recorder.Barrier();
    return Submit(recorder);
  }
  // Best of five, after a tenth of a second to bring the clocks up.
  template <typename MakeLaunchFor>
  absl::StatusOr<double> Time(const MakeLaunchFor& make) {
    TANDEM_ASSIGN_OR_RETURN(const auto pool, vulkan::CommandPool::Create(*device_));
    double best = 1e30;
    const absl::Time begin = absl::Now();
    for (int round = 0; round < 5;) {
      TANDEM_ASSIGN_OR_RETURN(auto recorder, vulkan::Recorder::Begin(pool, kernels_->layout()));
      recorder.ResetTimestamps(timestamps_.handle(), 0, 2);
      recorder.WriteTimestamp(timestamps_.handle(), 0);
      for (uint32_t i = 0; i < o_.repeats; ++i) {
        TANDEM_RETURN_IF_ERROR(kernels_->Record(make(i % k_.size()), recorder));
        recorder.Barrier();
      }
      recorder.WriteTimestamp(timestamps_.handle(), 1);
      TANDEM_RETURN_IF_ERROR(Submit(recorder));
      std::vector<uint64_t> ticks(2);
      TANDEM_RETURN_IF_ERROR(timestamps_.Read(0, ticks));
      if (absl::Now() - begin < absl::Milliseconds(100)) continue;
      ++round;
      const auto ns = static_cast<double>(timestamps_.Nanoseconds(ticks[0], ticks[1]));
      best = std::min(best, ns / 1000 / o_.repeats);
    }
    return best;
  }

  const Options o_;
  std::unique_ptr<vulkan::Instance> instance_;
  std::unique_ptr<vulkan::Device> device_;
  std::unique_ptr<vulkan::Timeline> timeline_;
  std::unique_ptr<KernelSet> kernels_;
  vulkan::TimestampPool timestamps_;
  uint32_t num_rows_ = 0;
  size_t tiles_at_ = 0;
  Buffer step_, attention_, qkv_, out_, weight_, rotation_, partials_, counters_;
  std::vector<Buffer> k_, v_;
};

// `rows` of each sequence, as speculation verifies guesses; 1: plain decoding.
struct DecodeCase {
  uint32_t sequences, depth, rows = 1;
};

absl::Status DecodeTable(Bench& bench, const Options& o, const std::vector<DecodeCase>& cases) {
  std::printf("decode, one launch: sequences, rows of each, depth, window: us, GB/s of K and V\n");
  for (const auto& [sequences, depth, rows] : cases) {
    TANDEM_RETURN_IF_ERROR(bench.Prepare(sequences, depth, rows));
    for (const uint32_t window : {0u, o.window}) {
      TANDEM_ASSIGN_OR_RETURN(const double us, bench.TimeDecode(window));
      const double positions = window == 0 ? depth : std::min(depth, window);
      const double bytes = 2 * positions * sequences *
                           static_cast<double>(RowBytes(o.kv_dtype, o.kv_heads * o.head_dim));
      std::printf("%4u %2u %6u %5u: %8.2f %7.0f\n", sequences, rows, depth, window, us,
                  bytes / us / 1e3);
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

absl::Status PromptTable(Bench& bench, const Options& o) {
  std::printf("prompt, chunks of 512: end, window: us, TFLOP/s\n");
  for (const uint32_t end : {512u, 1024u, 2048u, 8192u}) {
    TANDEM_RETURN_IF_ERROR(bench.Prepare(1, end, 512));
    for (const uint32_t window : {0u, o.window}) {
      TANDEM_ASSIGN_OR_RETURN(const double us, bench.TimeTiles(window));
      double pairs = 0;
      for (uint32_t p = end - 512; p < end; ++p) {
        pairs += window == 0 ? p + 1 : std::min(p + 1, window);
      }
      const double flops = 4 * pairs * o.heads * o.head_dim;
      std::printf("%6u %5u: %8.2f %6.1f\n", end, window, us, flops / us / 1e6);
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

absl::Status Main(const Options& o) {
  Bench bench(o);
  TANDEM_RETURN_IF_ERROR(bench.Open());
  bench.tuning().decode.enabled = bench.tuning().tiled.enabled = true;
  const std::vector<DecodeCase> all = {
      {1, 128}, {1, 1024},    {1, 8192}, {1, 32768}, {1, 128, 8}, {8, 128},   {1, 512, 8},
      {8, 512}, {1, 8192, 8}, {8, 1024}, {8, 8192},  {32, 128},   {32, 1024}, {32, 8192}};
  TANDEM_RETURN_IF_ERROR(DecodeTable(bench, o, all));
  TANDEM_RETURN_IF_ERROR(PromptTable(bench, o));
  if (!o.sweep) return absl::OkStatus();
  const std::vector<DecodeCase> few = {{1, 300},    {1, 1024}, {1, 8192}, {1, 300, 8},
                                       {1, 512, 8}, {8, 512},  {32, 1024}};
  const Tuning before = bench.tuning();
  // Threads, values of a lane, positions at once, KiB of a piece, workgroups.
  for (const auto& [threads, values, at_once, piece_kb, groups] :
       std::vector<std::array<uint32_t, 5>>{{128, 32, 2, 64, 128},
                                            {128, 32, 2, 64, 264},
                                            {128, 32, 2, 64, 396},
                                            {128, 32, 2, 64, 512},
                                            {128, 32, 2, 64, 768},
                                            {128, 32, 2, 64, 1024},
                                            {128, 32, 2, 32, 512},
                                            {128, 32, 2, 128, 512},
                                            {128, 32, 2, 128, 264},
                                            {128, 16, 2, 64, 512},
                                            {64, 32, 2, 64, 512},
                                            {128, 32, 1, 64, 512},
                                            {256, 32, 1, 64, 512}}) {
    bench.tuning().decode = {.enabled = true,
                             .threads = threads,
                             .lane_values = values,
                             .at_once = at_once,
                             .min_parts = before.decode.min_parts,
                             .piece_bytes = piece_kb << 10,
                             .num_groups = groups};
    std::printf("threads %u, values %u, %u at once, pieces of %u KiB, %u groups\n", threads, values,
                at_once, piece_kb, groups);
    TANDEM_RETURN_IF_ERROR(DecodeTable(bench, o, few));
  }
  bench.tuning() = before;
  // Matrix units, pairs, quads, row blocks, ahead.
  for (const auto& [cooperative, pairs, quads, row_blocks, ahead] :
       std::vector<std::array<uint32_t, 5>>{{1, 128, 1, 1, 1},
                                            {1, 64, 0, 2, 0},
                                            {1, 128, 0, 2, 0},
                                            {1, 128, 0, 2, 1},
                                            {1, 64, 0, 1, 1},
                                            {0, 64, 0, 1, 1}}) {
    bench.tuning().tiled = {.enabled = true,
                            .cooperative = cooperative != 0,
                            .pairs = pairs,
                            .quads = quads,
                            .wide_pairs = pairs,
                            .ahead = ahead,
                            .row_blocks = row_blocks};
    std::printf("%s, %u pairs, quads %u, row blocks %u, ahead %u\n",
                cooperative != 0 ? "matrix units" : "plain", pairs, quads, row_blocks, ahead);
    TANDEM_RETURN_IF_ERROR(PromptTable(bench, o));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::gpu

int main(int argc, char** argv) {
  tandem::gpu::Options options;
  CLI::App app("Times attention on a Vulkan device");
  app.add_option("--device", options.device, "index or part of a name");
  app.add_option("--heads", options.heads);
  app.add_option("--kv-heads", options.kv_heads);
  app.add_option("--head-dim", options.head_dim);
  app.add_option("--window", options.window);
  app.add_option("--repeats", options.repeats, "launches timed together");
  app.add_flag("--sweep", options.sweep, "try shapes of the kernels");
  std::string kv_type = "f16";
  app.add_option("--kv-type", kv_type)->check(CLI::IsMember({"f16", "q8_0"}));
  CLI11_PARSE(app, argc, argv);
  options.kv_dtype = tandem::ParseKvDType(kv_type).value();
  const absl::Status status = tandem::gpu::Main(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

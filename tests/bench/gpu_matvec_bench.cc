// How fast matmuls of few rows are on a device, over weights enough that no cache holds them.
//
//   gpu_matvec_bench [DEVICE] < CASES
//
// A case is a line: a name, q4_0 or another format, the weights' rows and columns, the rows of
// activations, "geglu" or "plain", and optionally teams, split-K, tiles, rows at once and parts in
// place of the tuned ones.  `plain-kernel` before the rest takes matmul.comp instead,
// `narrow-kernel` coop_matvec.comp, `matrix-kernel` coop_matmul.comp.  `norm NAME
// COLUMNS SPLIT_K THREADS` times the norm between matmuls.  Each line of output gives microseconds
// a launch and GB/s of weights, with a barrier after every launch and without.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>
#include <sstream>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/step/step_batch.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/kernels/matmul.h"
#include "services/gpu_worker/vulkan/query_pool.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::bench {
namespace {

constexpr uint64_t kWeightBytes = uint64_t{2} << 30;  // of all copies of a matrix
constexpr uint64_t kScratchBytes = uint64_t{160} << 20;
constexpr uint32_t kMaxRows = 32;
constexpr uint32_t kMaxTimestamps = 128;

struct Case {
  bool norm = false;
  gpu::MatmulKernel kernel = gpu::MatmulKernel::kMatvec;
  std::string name, format;
  uint32_t n_dim = 0, k_dim = 0, rows = 1;
  bool geglu = false;
  bool narrow = false;
  gpu::MatvecShape shape = {.teams = 0};
  uint32_t split_k = 1, threads = 0;  // norm
};

absl::StatusOr<Case> ParseCase(const std::string& line) {
  std::istringstream in(line);
  Case c;
  in >> c.name;
  if (c.name == "narrow-kernel") {
    c.narrow = true;
    in >> c.name;
  }
  if (c.name == "plain-kernel" || c.name == "matrix-kernel") {
    c.kernel = c.name == "plain-kernel" ? gpu::MatmulKernel::kPlain : gpu::MatmulKernel::kMatrix;
    in >> c.name;
  }
  if (c.name == "norm") {
    c.norm = true;
    in >> c.name >> c.k_dim >> c.split_k >> c.threads;
    if (!in) return absl::InvalidArgumentError("not a case: " + line);
    return c;
  }
  std::string epilogue;
  in >> c.format >> c.n_dim >> c.k_dim >> c.rows >> epilogue;
  if (!in || c.rows == 0 || c.rows > kMaxRows) {
    return absl::InvalidArgumentError("not a case: " + line);
  }
  c.geglu = epilogue == "geglu";
  gpu::MatvecShape shape;
  if (in >> shape.teams >> shape.split_k >> shape.tiles >> shape.rows >> shape.parts)
    c.shape = shape;
  return c;
}

// Bits an element and the planes' shares, in order.
struct Format {
  const char* name;
  uint32_t dtype;
  uint32_t plane_bits[4];  // of 256 elements
};
constexpr Format kFormats[] = {
    {"f16", 1, {4096}},
    {"bf16", 2, {4096}},
    {"q8_0", 3, {2048, 128}},
    {"q4_0", 4, {1024, 128}},
    {"q6_k", 5, {1024, 512, 128, 16}},
    {"q4_k", 6, {1024, 128, 32}},
    {"q5_k", 7, {1024, 256, 128, 32}},
    {"q5_0", 8, {1024, 256, 128}},
    {"iq4_nl", 9, {1024, 128}},
};

class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Create(const std::string& device) {
    auto bench = std::make_unique<Bench>();
    TANDEM_ASSIGN_OR_RETURN(bench->instance_, vulkan::Instance::Create({}));
    TANDEM_ASSIGN_OR_RETURN(const size_t index,
                            vulkan::ChooseDevice(bench->instance_->devices(), device));
    TANDEM_ASSIGN_OR_RETURN(bench->device_, vulkan::Device::Create(*bench->instance_, index));
    TANDEM_ASSIGN_OR_RETURN(bench->timeline_, vulkan::Timeline::Create(*bench->device_));
    TANDEM_ASSIGN_OR_RETURN(bench->kernels_, gpu::KernelSet::Create(*bench->device_, ""));
    TANDEM_RETURN_IF_ERROR(bench->Allocate());
    return bench;
  }

  absl::Status Run(const Case& c) {
    std::vector<gpu::Launch> launches;
    double bytes = 0;
    std::string how;
    TANDEM_RETURN_IF_ERROR(c.norm ? MakeNorm(c, launches) : MakeMatmul(c, launches, bytes, how));
    double microseconds[2];
    for (const bool barriers : {true, false}) {
      TANDEM_ASSIGN_OR_RETURN(microseconds[barriers ? 0 : 1], Time(launches, barriers));
    }
    if (c.norm) {
      TANDEM_ASSIGN_OR_RETURN(const double stamped, Time(launches, true, true));
      how = absl::StrFormat("with timestamps %.2f us", stamped);
    }
    std::printf(
        "%-18s %-7s %6d x %5d rows %2d %-26s %9.2f us %7.1f GB/s, apart %9.2f us %7.1f GB/s\n",
        c.name.c_str(), c.norm ? "norm" : c.format.c_str(), c.n_dim, c.k_dim, c.rows, how.c_str(),
        microseconds[0], bytes / microseconds[0] * 1e-3, microseconds[1],
        bytes / microseconds[1] * 1e-3);
    std::fflush(stdout);
    return absl::OkStatus();
  }

 private:
  absl::Status Allocate() {
    std::printf("%s", vulkan::DescribeDevice(device_->info()).c_str());
    const bool cpu = device_->info().type == VK_PHYSICAL_DEVICE_TYPE_CPU;
    weight_bytes_ = cpu ? kWeightBytes / 8 : kWeightBytes;
    TANDEM_ASSIGN_OR_RETURN(
        weights_,
        vulkan::Buffer::Allocate(*device_, weight_bytes_, vulkan::MemoryKind::kDevice, "weights"));
    TANDEM_ASSIGN_OR_RETURN(
        scratch_,
        vulkan::Buffer::Allocate(*device_, kScratchBytes, vulkan::MemoryKind::kDevice, "scratch"));
    constexpr uint64_t kPiece = uint64_t{64} << 20;
    TANDEM_ASSIGN_OR_RETURN(
        const vulkan::Buffer host,
        vulkan::Buffer::Allocate(*device_, kPiece, vulkan::MemoryKind::kExchange, "random"));
    std::mt19937 random(1);
    auto* words = reinterpret_cast<uint32_t*>(host.mapped().data());
    // As halves below 1.
    for (uint64_t i = 0; i < kPiece / 4; ++i) words[i] = random() & 0xBBFFBBFFu;
    TANDEM_ASSIGN_OR_RETURN(const auto pool, vulkan::CommandPool::Create(*device_));
    TANDEM_ASSIGN_OR_RETURN(auto recorder, vulkan::Recorder::Begin(pool, kernels_->layout()));
    for (uint64_t at = 0; at < weight_bytes_; at += kPiece) {
      recorder.Copy(host, 0, weights_, at, std::min(kPiece, weight_bytes_ - at));
    }
    for (uint64_t at = 0; at < kScratchBytes; at += kPiece) {
      recorder.Copy(host, 0, scratch_, at, std::min(kPiece, kScratchBytes - at));
    }
    TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
    TANDEM_RETURN_IF_ERROR(timeline_->SubmitAndWait({&commands, 1}, absl::Minutes(2)));
    TANDEM_ASSIGN_OR_RETURN(
        step_, vulkan::Buffer::Allocate(*device_, 4096, vulkan::MemoryKind::kUpload, "step"));
    TANDEM_ASSIGN_OR_RETURN(
        arrivals_, vulkan::Buffer::Allocate(*device_, gpu::kMatrixMaxTiles * sizeof(uint32_t),
                                            vulkan::MemoryKind::kUpload, "arrivals"));
    std::ranges::fill(arrivals_.mapped(), std::byte{0});
    TANDEM_ASSIGN_OR_RETURN(timestamps_, vulkan::TimestampPool::Create(*device_, kMaxTimestamps));
    return absl::OkStatus();
  }

  void SetRows(uint32_t rows) {
    StepHeader header{.num_rows = rows};
    std::memcpy(step_.mapped().data(), &header, sizeof(header));
  }

  absl::Status MakeNorm(const Case& c, std::vector<gpu::Launch>& launches) {
    SetRows(1);
    gpu::Tuning tuning = kernels_->tuning();
    tuning.wide_norm_threads = c.threads;
    const uint64_t row = uint64_t{c.k_dim} * 4;
    const uint64_t at = scratch_.address();
    for (uint32_t i = 0; i < 64; ++i) {
      launches.push_back(gpu::AddNormLaunch(tuning,
                                            {.step = step_.address(),
                                             .source = at,
                                             .weight = at + 16 * row,
                                             .residual = at + 17 * row,
                                             .next_weight = at + 18 * row,
                                             .normed = at + 19 * row,
                                             .cols = c.k_dim,
                                             .split_stride = c.k_dim},
                                            1, gpu::ActivationFormat::kInt8, c.split_k));
    }
    return absl::OkStatus();
  }

  absl::Status MakeMatmul(const Case& c, std::vector<gpu::Launch>& launches, double& bytes,
                          std::string& how) {
    const Format* format = nullptr;
    for (const Format& known : kFormats) {
      if (c.format == known.name) format = &known;
    }
    if (format == nullptr) return absl::InvalidArgumentError("no format " + c.format);
    SetRows(c.rows);
    const uint64_t tiles = gpu::DivideUp(c.n_dim, 32), units = gpu::DivideUp(c.k_dim, 256);
    uint64_t copy_bytes = 0, planes[4];
    for (int p = 0; p < 4; ++p) {
      planes[p] = copy_bytes;
      copy_bytes += tiles * 32 * units * format->plane_bits[p] / 8;
    }
    if (copy_bytes > weight_bytes_) return absl::InvalidArgumentError(c.name + " is too large");
    bytes = static_cast<double>(copy_bytes);
    const auto copies = static_cast<uint32_t>(weight_bytes_ / copy_bytes);
    gpu::DeviceTensor tensor = {static_cast<DType>(format->dtype), c.n_dim, c.k_dim, {}};
    const uint32_t bucket = std::bit_ceil(c.rows);
    gpu::Tuning tuning = kernels_->tuning();
    tuning.matrix.min_rows = 1;
    if (c.kernel == gpu::MatmulKernel::kMatrix &&
        !gpu::UsesMatrixUnits(tuning, tensor.dtype, bucket)) {
      return absl::InvalidArgumentError("no matrix units for " + c.format);
    }
    gpu::Matmul matmul = {.kernel = c.kernel, .shape = c.shape};
    if (c.kernel == gpu::MatmulKernel::kMatrix) matmul.input = gpu::ActivationFormat::kF16;
    if (c.kernel == gpu::MatmulKernel::kMatvec) {
      matmul.input = c.narrow ? gpu::ActivationFormat::kFragments : gpu::MatvecInput(tensor.dtype);
      tuning.matrix.narrow = tuning.matrix.narrow && c.narrow;
      tuning.matrix.narrow_min_rows = 1;
      if (c.shape.teams == 0) {
        matmul.shape = gpu::ChooseMatvecShape(tuning, tensor, c.geglu, true, bucket);
      }
      matmul.shape.narrow = c.narrow;
      const gpu::MatvecShape& shape = matmul.shape;
      how = absl::StrFormat("teams %d split-K %d tiles %d of %d / %d", shape.teams, shape.split_k,
                            shape.tiles, shape.rows, shape.parts);
    } else {
      how = c.kernel == gpu::MatmulKernel::kPlain ? "plain" : "matrix";
    }
    const gpu::MatrixWorkspace workspace = {.sums = scratch_.address() + kScratchBytes / 2,
                                            .sums_bytes = kScratchBytes / 4,
                                            .arrivals = arrivals_.address()};
    const uint64_t x = scratch_.address(), out = x + kScratchBytes / 8;
    const uint64_t count = step_.address() + offsetof(StepHeader, num_rows);
    const uint32_t launches_wanted = std::max(copies, std::min(124u, copies * 8));
    for (uint32_t i = 0; i < launches_wanted; ++i) {
      gpu::DeviceShard shard = {.num_rows = c.n_dim};
      for (int p = 0; p < 4; ++p) {
        shard.plane[p] = weights_.address() + i % copies * copy_bytes + planes[p];
      }
      launches.push_back(
          gpu::MatmulLaunch(tuning, matmul, tensor, shard,
                            {.count = count,
                             .x = x,
                             .destination = out,
                             .out_stride = c.geglu ? c.n_dim / 2 : c.n_dim,
                             .split_stride = kMaxRows * c.n_dim,
                             .geglu = c.geglu,
                             .out_format = c.geglu ? matmul.input : gpu::ActivationFormat::kF32,
                             .max_rows = bucket,
                             .workspace = workspace}));
    }
    return absl::OkStatus();
  }

  // Microseconds a launch: the best of several runs, after one to warm up.
  absl::StatusOr<double> Time(const std::vector<gpu::Launch>& launches, bool barriers,
                              bool stamps = false) {
    TANDEM_ASSIGN_OR_RETURN(const auto pool, vulkan::CommandPool::Create(*device_));
    TANDEM_ASSIGN_OR_RETURN(auto recorder, vulkan::Recorder::Begin(pool, kernels_->layout()));
    recorder.ResetTimestamps(timestamps_.handle(), 0, kMaxTimestamps);
    recorder.WriteTimestamp(timestamps_.handle(), 0);
    uint32_t next = 2;
    for (const gpu::Launch& launch : launches) {
      TANDEM_RETURN_IF_ERROR(kernels_->Record(launch, recorder));
      if (barriers) recorder.Barrier();
      if (stamps) recorder.WriteTimestamp(timestamps_.handle(), next++);
    }
    recorder.WriteTimestamp(timestamps_.handle(), 1);
    TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
    double best = 0;
    for (int run = 0; run < 20; ++run) {
      const auto start = std::chrono::steady_clock::now();
      TANDEM_RETURN_IF_ERROR(timeline_->SubmitAndWait({&commands, 1}, absl::Minutes(2)));
      const std::chrono::duration<double, std::micro> wall =
          std::chrono::steady_clock::now() - start;
      uint64_t ticks[2];
      TANDEM_RETURN_IF_ERROR(timestamps_.Read(0, ticks));
      // A software device's timestamps are those of the recording's end.
      const bool cpu = device_->info().type == VK_PHYSICAL_DEVICE_TYPE_CPU;
      const double spent =
          cpu ? wall.count()
              : static_cast<double>(timestamps_.Nanoseconds(ticks[0], ticks[1])) * 1e-3;
      if (run == 1 || (run > 1 && spent < best)) best = spent;
    }
    return best / static_cast<double>(launches.size());
  }

  std::unique_ptr<vulkan::Instance> instance_;
  std::unique_ptr<vulkan::Device> device_;
  std::unique_ptr<vulkan::Timeline> timeline_;
  std::unique_ptr<gpu::KernelSet> kernels_;
  uint64_t weight_bytes_ = 0;
  vulkan::Buffer weights_, scratch_, step_, arrivals_;
  vulkan::TimestampPool timestamps_;
};

absl::Status Main(const std::string& device) {
  TANDEM_ASSIGN_OR_RETURN(const auto bench, Bench::Create(device));
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty() || line[0] == '#') continue;
    TANDEM_ASSIGN_OR_RETURN(const Case c, ParseCase(line));
    TANDEM_RETURN_IF_ERROR(bench->Run(c));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  const absl::Status status = tandem::bench::Main(argc > 1 ? argv[1] : "");
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

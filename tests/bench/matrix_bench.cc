// Times matmuls of many rows on matrix units: Gemma 3 27B's four shapes, in the tiles that are
// tuned or, with --sweep, in each of a list, with k split into several numbers of parts.
//
//   matrix_bench [--sweep] [--formats q4_0,q8_0,f16] [--rows 32,128,2048]
//
// A time is the best of three runs over distinct matrices (300 MB together, so that none is in a
// cache) with a barrier after each, divided by their number.  `error` is that of 24 matmuls
// against float64 sums of the same float16 inputs, in norm.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "CLI/CLI.hpp"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/kernels/matrix_launches.h"
#include "services/gpu_worker/vulkan/query_pool.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {
namespace {

struct Shape {
  const char* name;
  uint32_t n_dim, k_dim;
  MatrixOutput output;

  uint64_t elements() const { return uint64_t{n_dim} * k_dim; }
};
// Gemma 3 27B's.
constexpr Shape kDecoder[] = {
    {"qkv", 8192, 5376, MatrixOutput::kF32},
    {"out", 5376, 4096, MatrixOutput::kF32},
    {"gate_up", 43008, 5376, MatrixOutput::kGegluF16},
    {"down", 5376, 21504, MatrixOutput::kF32},
};
// Of its vision encoder, whose 4,304 inputs of "down" are filled up to blocks.
constexpr Shape kEncoder[] = {
    {"qkv", 3456, 1152, MatrixOutput::kF32},
    {"out", 1152, 1152, MatrixOutput::kF32},
    {"up", 4304, 1152, MatrixOutput::kF32},
    {"down", 1152, 4320, MatrixOutput::kF32},
};
constexpr uint32_t kMaxRows = 4096, kMaxK = 21504;
constexpr uint64_t kPatternBytes = 32 << 20;  // of random contents, repeated
constexpr uint64_t kRotation = 300 << 20;

struct Options {
  bool sweep = false;
  bool encoder = false;
  std::vector<std::string> formats = {"q4_0", "q8_0", "f16"};
  std::vector<uint32_t> rows = {16, 32, 64, 128, 512, 2048};
};

// Tiles to try for matmuls of up to `rows` rows.
std::vector<MatrixTile> SweptTiles(uint32_t rows) {
  std::vector<MatrixTile> tiles;
  if (rows <= 32) {
    for (const uint32_t chunk : {64u, 128u}) {
      for (const uint32_t columns : {16u, 32u, 64u}) {
        if (rows > 16 && columns == 64) continue;
        tiles.push_back({.columns = columns, .rows = rows <= 16 ? 16u : 32u, .chunk = chunk});
      }
    }
  } else {
    for (const uint32_t subgroups : {4u, 8u}) {
      tiles.push_back({.columns = 32, .rows = 64, .subgroups = subgroups});
      if (rows > 64) tiles.push_back({.columns = 32, .rows = 128, .subgroups = subgroups});
    }
    tiles.push_back({.columns = 64, .rows = 64, .subgroups = 4});
    if (rows <= 128) tiles.push_back({.columns = 32, .rows = 64, .subgroups = 4, .chunk = 128});
  }
  return tiles;
}

// Piece sizes and elements of plane 0, elements of a scale; see packed_tensor.h.
struct Format {
  DType dtype;
  uint32_t piece_elements;
  double bytes_of_element;
};
const std::map<std::string, Format> kFormats = {{"q4_0", {DType::kQ4_0, 32, 0.5625}},
                                                {"q8_0", {DType::kQ8_0, 16, 1.0625}},
                                                {"f16", {DType::kF16, 8, 2}}};

class Bench {
 public:
  absl::Status Open(const Options& options) {
    options_ = options;
    if (options.encoder) shapes_ = kEncoder;
    TANDEM_ASSIGN_OR_RETURN(instance_, vulkan::Instance::Create({}));
    TANDEM_ASSIGN_OR_RETURN(const size_t index, vulkan::ChooseDevice(instance_->devices(), ""));
    TANDEM_ASSIGN_OR_RETURN(device_, vulkan::Device::Create(*instance_, index));
    TANDEM_ASSIGN_OR_RETURN(timeline_, vulkan::Timeline::Create(*device_));
    TANDEM_ASSIGN_OR_RETURN(kernels_, KernelSet::Create(*device_, ""));
    TANDEM_ASSIGN_OR_RETURN(timestamps_, vulkan::TimestampPool::Create(*device_, 2));
    tuning_ = kernels_->tuning();
    const FragmentLayout& layout = tuning_.matrix.fragments;
    std::printf("%sleft matrices: path %d, pairs %x %x\n", DescribeDevice(device_->info()).c_str(),
                static_cast<int>(layout.path), layout.pair_rows, layout.pair_halves);
    if (layout.path == MatrixPath::kNone) return absl::UnimplementedError("no matrix units");
    tuning_.matrix.min_rows = 1;
    return Fill();
  }

  absl::Status Run() {
    for (const std::string& name : options_.formats) {
      const auto format = kFormats.find(name);
      if (format == kFormats.end()) return absl::InvalidArgumentError("format " + name);
      for (const uint32_t rows : options_.rows) {
        TANDEM_RETURN_IF_ERROR(RunRows(name, format->second, rows));
      }
    }
    return absl::OkStatus();
  }

 private:
  using Key = std::pair<KernelId, vulkan::Specialization>;

  absl::StatusOr<vulkan::Buffer> Make(uint64_t bytes) {
    return vulkan::Buffer::Allocate(*device_, bytes, vulkan::MemoryKind::kUpload, "bench");
  }
  // Random bytes (int8 and nibbles), small floats (scales) and floats (weights, inputs).
  absl::Status Fill() {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    bytes_.resize(kPatternBytes);
    for (uint64_t i = 0; i < kPatternBytes; i += 8) {
      const uint64_t word = random();
      std::memcpy(&bytes_[i], &word, 8);
    }
    halves_.resize(kPatternBytes / 2);
    for (size_t i = 0; i < halves_.size(); ++i) {
      halves_[i] = i < 65536 ? FloatToHalf(normal(random)) : halves_[(i * 7919) % 65521];
    }
    scales_ = halves_;
    for (uint16_t& scale : scales_) scale = (scale & 0x83FF) | 0x2000;  // 2^-7 to 2^-6
    TANDEM_ASSIGN_OR_RETURN(weights_, Make(uint64_t{1} << 30));
    TANDEM_ASSIGN_OR_RETURN(scale_plane_, Make(uint64_t{64} << 20));
    TANDEM_ASSIGN_OR_RETURN(x_, Make(uint64_t{kMaxRows} * kMaxK * 2));
    TANDEM_ASSIGN_OR_RETURN(out_, Make(uint64_t{kMaxRows} * 21504 * 4));
    TANDEM_ASSIGN_OR_RETURN(sums_, Make(uint64_t{128} << 20));
    TANDEM_ASSIGN_OR_RETURN(arrivals_, Make(kMatrixMaxTiles * 4));
    TANDEM_ASSIGN_OR_RETURN(count_, Make(4));
    std::ranges::fill(arrivals_.mapped(), std::byte{0});
    Repeat(std::as_bytes(std::span(scales_)), scale_plane_);
    Repeat(std::as_bytes(std::span(halves_)), x_);
    return absl::OkStatus();
  }
  static void Repeat(std::span<const std::byte> pattern, const vulkan::Buffer& to) {
    const std::span<std::byte> out = to.mapped();
    std::vector<std::thread> threads;
    for (uint64_t at = 0; at < out.size(); at += pattern.size()) {
      threads.emplace_back([=] {
        std::memcpy(&out[at], pattern.data(), std::min(pattern.size(), out.size() - at));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // All pipelines at once, on all cores: a driver takes seconds for each.
  absl::Status Build(const std::vector<Launch>& launches) {
    std::vector<const Launch*> missing;
    for (const Launch& launch : launches) {
      if (pipelines_.try_emplace({launch.kernel, launch.constants}).second) {
        missing.push_back(&launch);
      }
    }
    std::atomic<size_t> next = 0;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < std::thread::hardware_concurrency(); ++t) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < missing.size(); i = next++) {
          const KernelTraits& traits = Traits(missing[i]->kernel);
          auto pipeline =
              vulkan::Pipeline::Create(*device_, kernels_->layout(), VK_NULL_HANDLE, traits.name,
                                       traits.spirv, missing[i]->constants);
          if (pipeline.ok()) {
            pipelines_.at({missing[i]->kernel, missing[i]->constants}) = *std::move(pipeline);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return absl::OkStatus();
  }

  absl::StatusOr<double> Seconds(const std::vector<Launch>& launches) {
    TANDEM_ASSIGN_OR_RETURN(const auto pool, vulkan::CommandPool::Create(*device_));
    TANDEM_ASSIGN_OR_RETURN(auto recorder, vulkan::Recorder::Begin(pool, kernels_->layout()));
    recorder.ResetTimestamps(timestamps_.handle(), 0, 2);
    recorder.WriteTimestamp(timestamps_.handle(), 0);
    for (const Launch& launch : launches) {
      recorder.Dispatch(pipelines_.at({launch.kernel, launch.constants}),
                        std::span(launch.push).first(launch.push_bytes), launch.groups_x,
                        launch.groups_y);
      recorder.Barrier();
    }
    recorder.WriteTimestamp(timestamps_.handle(), 1);
    recorder.HostBarrier();
    TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
    uint64_t best = ~uint64_t{0};
    for (int i = 0; i < 3; ++i) {
      TANDEM_RETURN_IF_ERROR(timeline_->SubmitAndWait({&commands, 1}, absl::Minutes(1)));
      uint64_t ticks[2];
      TANDEM_RETURN_IF_ERROR(timestamps_.Read(0, ticks));
      best = std::min(best, timestamps_.Nanoseconds(ticks[0], ticks[1]));
    }
    return static_cast<double>(best) * 1e-9 / static_cast<double>(launches.size());
  }

  std::vector<Launch> Launches(const Shape& shape, const Format& format, uint32_t rows,
                               const MatrixTile& tile, uint32_t count) {
    Tuning tuning = tuning_;
    if (options_.sweep) tuning.matrix.tiles = {tile};
    const auto bytes = shape.elements() * 16 / format.piece_elements;
    std::vector<Launch> launches;
    for (uint32_t i = 0; i < count; ++i) {
      const DeviceShard shard = {
          0, shape.n_dim, {weights_.address() + i * bytes, scale_plane_.address()}};
      launches.push_back(MatrixMatmulLaunch(
          tuning, {format.dtype, shape.n_dim, shape.k_dim, {shard}}, shard,
          {.count = count_.address(),
           .x = x_.address(),
           .output = shape.output,
           .destination = out_.address(),
           .out_stride = shape.output == MatrixOutput::kF32 ? shape.n_dim : shape.n_dim / 2,
           .max_rows = rows,
           .workspace = {sums_.address(), sums_.bytes(), arrivals_.address()}}));
    }
    return launches;
  }

  // Of the first matrix's matmuls, whose weights begin the pattern.
  double Error(const Shape& shape, const Format& format, uint32_t rows) {
    if (shape.output != MatrixOutput::kF32) return 0;
    double error = 0, norm = 0;
    const auto* out = reinterpret_cast<const float*>(out_.mapped().data());
    for (uint32_t i = 0; i < 24; ++i) {
      const uint32_t row = i % 3 * (rows - 1) / 2;
      const uint32_t column = (i * 1237) % shape.n_dim;
      double sum = 0;
      for (uint32_t k = 0; k < shape.k_dim; ++k) {
        sum += Weight(shape, format, column, k) *
               HalfToFloat(halves_[(uint64_t{row} * shape.k_dim + k) % halves_.size()]);
      }
      const double off = out[uint64_t{row} * shape.n_dim + column] - sum;
      error += off * off;
      norm += sum * sum;
    }
    return std::sqrt(error / norm);
  }
  double Weight(const Shape& shape, const Format& format, uint32_t row, uint32_t k) const {
    const auto piece = [&](uint32_t elements) {
      const uint64_t pieces = (shape.k_dim + elements - 1) / elements;
      return ((row / 32 * pieces + k / elements) * 32 + row % 32) * 16;
    };
    const uint64_t at = piece(format.piece_elements);
    if (format.dtype == DType::kF16) {
      return HalfToFloat(halves_[(at / 2 + k % 8) % halves_.size()]);
    }
    const double scale = HalfToFloat(scales_[(piece(256) / 2 + k / 32 % 8) % scales_.size()]);
    const auto byte = [&](uint32_t i) { return bytes_[(at + i) % kPatternBytes]; };
    if (format.dtype == DType::kQ8_0) return scale * static_cast<int8_t>(byte(k % 16));
    const int nibble = k % 32 < 16 ? byte(k % 16) & 15 : byte(k % 16) >> 4;
    return scale * (nibble < 8 ? nibble : nibble - 16);
  }

  absl::Status RunRows(const std::string& name, const Format& format, uint32_t rows) {
    const auto begin = std::chrono::steady_clock::now();
    if (filled_ != (format.dtype == DType::kF16 ? 2 : 1)) {
      filled_ = format.dtype == DType::kF16 ? 2 : 1;
      Repeat(filled_ == 2 ? std::as_bytes(std::span(halves_)) : std::as_bytes(std::span(bytes_)),
             weights_);
    }
    std::memcpy(count_.mapped().data(), &rows, 4);
    std::vector<MatrixTile> tiles = SweptTiles(rows);
    if (!options_.sweep) {
      tiles.resize(1);
    }
    std::vector<Launch> all;
    for (const MatrixTile& tile : tiles) {
      for (const Shape& shape : shapes_) all.push_back(Launches(shape, format, rows, tile, 1)[0]);
    }
    TANDEM_RETURN_IF_ERROR(Build(all));
    // Clocks fall while pipelines are built.
    const auto warm_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
    const std::vector<Launch> warm(4, all[2]);
    while (std::chrono::steady_clock::now() < warm_until) {
      TANDEM_RETURN_IF_ERROR(Seconds(warm).status());
    }
    double layer = 0, layer_flops = 0;
    for (const Shape& shape : shapes_) {
      const auto bytes = shape.elements() * 16 / format.piece_elements;
      const auto copies = static_cast<uint32_t>(
          std::clamp<uint64_t>(kRotation / bytes, 1, weights_.bytes() / bytes));
      double best = 1e9;
      for (const MatrixTile& tile : tiles) {
        std::vector<uint32_t> tried;
        for (const uint32_t groups : {1u, 132u, 200u, 264u, 396u, 528u, 792u}) {
          if (!options_.sweep && groups != 1) break;
          MatrixTile t = tile;
          if (options_.sweep) t.groups = groups;
          const std::vector<Launch> launches = Launches(shape, format, rows, t, copies);
          if (!pipelines_.at({launches[0].kernel, launches[0].constants}).handle()) continue;
          if (std::ranges::find(tried, launches[0].groups_y) != tried.end()) continue;
          tried.push_back(launches[0].groups_y);
          if (launches[0].groups_y * launches[0].groups_x > 3000 && groups != 1) continue;
          TANDEM_RETURN_IF_ERROR(Seconds({launches[0]}).status());
          const double error = Error(shape, format, rows);
          TANDEM_ASSIGN_OR_RETURN(const double seconds, Seconds(launches));
          const double flops = 2.0 * static_cast<double>(shape.elements()) * rows;
          const double stored = static_cast<double>(shape.elements()) * format.bytes_of_element;
          const auto constant = [&](uint32_t id) { return launches[0].constants.at(id); };
          std::printf(
              "%s %-7s n %4u tile %2ux%3ux%u/%3u groups %3u x %4u %8.1f us %6.1f "
              "TFLOP/s %5.2f TB/s error %.2e\n",
              name.c_str(), shape.name, rows, constant(4), constant(5), constant(6), constant(7),
              launches[0].groups_x, launches[0].groups_y, seconds * 1e6, flops / seconds * 1e-12,
              stored / seconds * 1e-12, error);
          best = std::min(best, seconds);
        }
      }
      layer += best;
      layer_flops += 2.0 * static_cast<double>(shape.elements()) * rows;
    }
    const auto spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin);
    std::printf("%s n %4u: layer %.1f us, 62 layers %.2f ms, %.0f rows/s, %.0f TFLOP/s (%.1f s)\n",
                name.c_str(), rows, layer * 1e6, layer * 62e3, rows / (layer * 62),
                layer_flops / layer * 1e-12, spent.count());
    std::fflush(stdout);
    return absl::OkStatus();
  }

  Options options_;
  std::span<const Shape> shapes_ = kDecoder;
  std::unique_ptr<vulkan::Instance> instance_;
  std::unique_ptr<vulkan::Device> device_;
  std::unique_ptr<vulkan::Timeline> timeline_;
  std::unique_ptr<KernelSet> kernels_;
  vulkan::TimestampPool timestamps_;
  Tuning tuning_;
  std::vector<uint8_t> bytes_;
  std::vector<uint16_t> halves_, scales_;
  vulkan::Buffer weights_, scale_plane_, x_, out_, sums_, arrivals_, count_;
  std::map<Key, vulkan::Pipeline> pipelines_;
  int filled_ = 0;
};

}  // namespace
}  // namespace tandem::gpu

int main(int argc, char** argv) {
  tandem::gpu::Options options;
  CLI::App app("Times matmuls of many rows on matrix units.");
  app.add_flag("--sweep", options.sweep, "try many tiles");
  app.add_flag("--encoder", options.encoder,
               "the vision encoder's shapes in place of the decoder's");
  app.add_option("--formats", options.formats, "weights")->delimiter(',');
  app.add_option("--rows", options.rows, "rows of the input")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  tandem::gpu::Bench bench;
  absl::Status status = bench.Open(options);
  if (status.ok()) status = bench.Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

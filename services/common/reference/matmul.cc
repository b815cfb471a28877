#include "services/common/reference/matmul.h"

#include <algorithm>
#include <thread>

#include "services/common/base/check.h"

namespace tandem::reference {
namespace {

// Sanitizers would make the inner loops six times slower; MatMul checks the spans that they walk over.
#ifdef __clang__
#define TANDEM_UNSANITIZED [[clang::no_sanitize("address", "undefined")]]
#else
#define TANDEM_UNSANITIZED
#endif
#define TANDEM_INLINE [[gnu::always_inline]] TANDEM_UNSANITIZED inline

constexpr size_t kLanes = 8;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef float UnalignedVector
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

struct Operands {
  const float* x;        // [num_rows, cols]
  const float* weights;  // [num_weights, cols]
  float* out;            // [num_rows, num_weights]
  size_t cols;
  size_t num_weights;
};

// Eight elements, or as many as there are and zeros.
TANDEM_INLINE void Load(const float* p, size_t available, Vector& out) {
  if (available >= kLanes) {
    out = *reinterpret_cast<const UnalignedVector*>(p);
    return;
  }
  out = Vector{};
  for (size_t lane = 0; lane < available; ++lane) out[lane] = p[lane];
}

// Adds `available` columns of R rows times N weights, rows of both `cols` apart.
template <int R, int N>
TANDEM_INLINE void Add(const float* x, const float* w, size_t cols, size_t available,
                       Vector (&sum)[R][N]) {
  Vector a, b[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) Load(w + n * cols, available, b[n]);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Load(x + r * cols, available, a);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sum[r][n] += a * b[n];
  }
}

// A tile of R x N results: eight lanes of partial sums each, then the lanes in order.
template <int R, int N>
TANDEM_INLINE void Tile(const Operands& op, size_t row, size_t weight) {
  const float* x = op.x + row * op.cols;
  const float* w = op.weights + weight * op.cols;
  Vector sum[R][N] = {};
  const size_t whole = op.cols / kLanes * kLanes;
  for (size_t k = 0; k < whole; k += kLanes) Add(x + k, w + k, op.cols, kLanes, sum);
  if (whole < op.cols) Add(x + whole, w + whole, op.cols, op.cols - whole, sum);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      float total = 0.0f;
      for (size_t lane = 0; lane < kLanes; ++lane) total += sum[r][n][lane];
      op.out[(row + r) * op.num_weights + weight + n] = total;
    }
  }
}

// Sums of 12 vectors, of 16 registers.
constexpr int kTileRows = 3;
constexpr int kTileWeights = 4;
constexpr size_t kRowBlock = 64;  // rows that stay in the cache while weights stream by

template <int N>
TANDEM_INLINE void Column(const Operands& op, size_t row, size_t end, size_t weight) {
  for (; row + kTileRows <= end; row += kTileRows) Tile<kTileRows, N>(op, row, weight);
  for (; row < end; ++row) Tile<1, N>(op, row, weight);
}

TANDEM_INLINE void Multiply(const Operands& op, size_t num_rows, size_t begin, size_t end) {
  for (size_t row = 0; row < num_rows; row += kRowBlock) {
    const size_t row_end = std::min(row + kRowBlock, num_rows);
    size_t weight = begin;
    for (; weight + kTileWeights <= end; weight += kTileWeights) {
      Column<kTileWeights>(op, row, row_end, weight);
    }
    for (; weight < end; ++weight) Column<1>(op, row, row_end, weight);
  }
}

TANDEM_UNSANITIZED void MultiplyAnywhere(const Operands& op, size_t num_rows, size_t begin,
                                         size_t end) {
  Multiply(op, num_rows, begin, end);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] TANDEM_UNSANITIZED void MultiplyAvx2(const Operands& op, size_t num_rows,
                                                             size_t begin, size_t end) {
  Multiply(op, num_rows, begin, end);
}
bool HasAvx2() { return __builtin_cpu_supports("avx2"); }
#else
constexpr auto MultiplyAvx2 = MultiplyAnywhere;
bool HasAvx2() { return false; }
#endif

}  // namespace

void ParallelFor(int num_threads, size_t n, const std::function<void(size_t, size_t)>& fn) {
  const auto count = static_cast<size_t>(std::max(1, num_threads));
  std::vector<std::thread> threads;
  for (size_t t = 1; t < count; ++t) {
    threads.emplace_back([&fn, t, n, count] { fn(n * t / count, n * (t + 1) / count); });
  }
  fn(0, n / count);
  for (std::thread& thread : threads) thread.join();
}

void MatMul(std::span<const float> x, size_t num_rows, const Matrix& weights, std::span<float> out,
            int num_threads) {
  TANDEM_CHECK(x.size() == num_rows * weights.cols);
  TANDEM_CHECK(weights.values.size() == weights.rows * weights.cols);
  TANDEM_CHECK(out.size() == num_rows * weights.rows);
  const Operands op{x.data(), weights.values.data(), out.data(), weights.cols, weights.rows};
  const auto multiply = HasAvx2() ? MultiplyAvx2 : MultiplyAnywhere;
  // A thread costs some 20 us to start: below a few million multiplications it does not pay.
  const size_t work = num_rows * weights.rows * weights.cols;
  ParallelFor(work < (4u << 20) ? 1 : num_threads, weights.rows,
              [&](size_t begin, size_t end) { multiply(op, num_rows, begin, end); });
}

}  // namespace tandem::reference

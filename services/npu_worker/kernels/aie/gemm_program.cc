// The program of the GEMM's cores: what README.md has a core call, between its locks.
//
// Build with -DTANDEM_GEMM_FORMAT=80, 40 or 16: weights in q8_0, q4_0 or bf16.
//
// Scales and weights of q8_0 and q4_0 share a stream and differ in length, so they come in pieces of 1 KiB
// into a ring.  Weights that go over the ring's end are gathered first.
#define TANDEM_CORE_FUNCTION [[maybe_unused]] static
#define TANDEM_CORE_PROGRAM
#include "services/npu_worker/kernels/aie/gemm.cc"

#include "services/npu_worker/kernels/aie/core_program.h"
#include "services/npu_worker/kernels/aie/gemm_ring.h"

namespace tandem::npu {
namespace {

constexpr unsigned kTilesOfChunk = kGemmChunk / kGemmInputs;

// The weights' stream: takes `count` pieces at a time.
class WeightRing {
 public:
  WeightRing(int8* pieces, int8* gathered) : pieces_(pieces), gathered_(gathered) {}

  // The next pieces, side by side.
  const int8* Take(unsigned count) {
    TakeFull(CoreStream::kSecond, count);
    if (next_ + count <= kGemmRing.num_pieces) return pieces_ + next_ * kGemmRing.piece_bytes;
    for (unsigned i = 0; i < count; ++i) {
      CopyWords(pieces_ + Wrapped(next_ + i) * kGemmRing.piece_bytes,
                gathered_ + i * kGemmRing.piece_bytes, kGemmRing.piece_bytes);
    }
    return gathered_;
  }
  void Release(unsigned count) {
    next_ = Wrapped(next_ + count);
    ReleaseFree(CoreStream::kSecond, count);
  }

 private:
  static unsigned Wrapped(unsigned piece) {
    return piece < kGemmRing.num_pieces ? piece : piece - kGemmRing.num_pieces;
  }

  int8* const pieces_;
  int8* const gathered_;
  unsigned next_ = 0;
};

}  // namespace
}  // namespace tandem::npu

// parameters: tiles of inputs, tiles of outputs.  `gathered`, `scales` and `tile` are not used with bf16.
extern "C" void TANDEM_PROGRAM(const volatile int32* parameters, bfloat16* activations,
                               int8* weights, int8* gathered, [[maybe_unused]] bfloat16* scales,
                               [[maybe_unused]] bfloat16* tile, float* sums) {
  WeightRing ring(weights, gathered);
  unsigned half = 0;  // of the activations' two buffers
  while (true) {
    TakeLock(kCoreParameterLock, 1);
    const auto num_inputs = static_cast<unsigned>(parameters[0]);
    const auto num_outputs = static_cast<unsigned>(parameters[1]);
    gemm_start();
    for (LockCount output; output < num_outputs; output += 1) {
      TakeFree(CoreStream::kOutput);
      gemm_clear(sums);
      for (LockCount input; input < num_inputs; input += 1) {
        if constexpr (kGemmRing.scale_pieces > 0) {
          if (input % kTilesOfChunk == 0) {
            gemm_scales(reinterpret_cast<const uint16*>(ring.Take(kGemmRing.scale_pieces)), scales);
            ring.Release(kGemmRing.scale_pieces);
          }
        }
        TakeFull(CoreStream::kFirst);
        const int8* const packed = ring.Take(kGemmRing.weight_pieces);
        const bfloat16* const rows = activations + half * kGemmRows * kGemmInputs;
#if TANDEM_GEMM_FORMAT == 16
        gemm_multiply(rows, reinterpret_cast<const bfloat16*>(packed), sums);
        ring.Release(kGemmRing.weight_pieces);
#else
#if TANDEM_GEMM_FORMAT == 80
        gemm_dequantise_q8_0(packed, scales, input % kTilesOfChunk, tile);
#else
        gemm_dequantise_q4_0(packed, scales, input % kTilesOfChunk, tile);
#endif
        ring.Release(kGemmRing.weight_pieces);
        gemm_multiply(rows, tile, sums);
#endif
        ReleaseFree(CoreStream::kFirst);
        half ^= 1;
      }
      ReleaseFull(CoreStream::kOutput);
    }
  }
}

// The program of the row functions' cores: what README.md has a core call, between its locks.
//
// Objects of 32 words come into rings of two, and are copied to where a function wants the whole row.
#define TANDEM_CORE_FUNCTION [[maybe_unused]] static
#define TANDEM_CORE_PROGRAM
#include "services/npu_worker/kernels/aie/geglu.cc"
#include "services/npu_worker/kernels/aie/norm.cc"
#include "services/npu_worker/kernels/aie/rope.cc"

#include "services/npu_worker/kernels/aie/core_program.h"
#include "services/npu_worker/kernels/aie/row_tile.h"

namespace tandem::npu {
namespace {

// A ring of two objects.
class Objects {
 public:
  explicit Objects(float* objects) : objects_(objects) {}

  float* next() const { return objects_ + half_ * kRowObjectWords; }
  void Turn() { half_ ^= 1; }

 private:
  float* const objects_;
  unsigned half_ = 0;
};

// The next `count` numbers of a stream.
void TakeNumbers(CoreStream stream, Objects& objects, float* to, unsigned count) {
  for (LockCount i; i < count; i += kRowObjectWords) {
    TakeFull(stream);
    CopyWords(objects.next(), to + i, kRowObjectWords);
    objects.Turn();
    ReleaseFree(stream);
  }
}

// Hands over objects of bfloat16.
void PutHalves(const bfloat16* halves, Objects& objects, unsigned count) {
  for (LockCount i; i < count; i += kRowMultiple) {
    TakeFree(CoreStream::kOutput);
    CopyWords(halves + i, reinterpret_cast<bfloat16*>(objects.next()), kRowMultiple);
    objects.Turn();
    ReleaseFull(CoreStream::kOutput);
  }
}

}  // namespace
}  // namespace tandem::npu

// row, weights: float32 [kRowMaxNorm].  second: float32 [kRowMaxHead].  halves: bfloat16 [kRowMaxHead].
extern "C" void TANDEM_PROGRAM(const tandem::npu::RowParameters* parameters, float* row_objects,
                               float* weight_objects, float* output_objects, float* row,
                               float* weights, float* second, bfloat16* halves) {
  using namespace tandem::npu;
  Objects rows(row_objects), weight_stream(weight_objects), output(output_objects);
  while (true) {
    TakeLock(kCoreParameterLock, 1);
    const RowParameters work = *parameters;
    const auto function = static_cast<RowFunction>(work.function);
    const auto size = static_cast<unsigned>(work.size);
    if (function != RowFunction::kGeglu) {
      TakeNumbers(CoreStream::kSecond, weight_stream, weights, size);
    }
    for (LockCount done; done < static_cast<unsigned>(work.num_rows); done += 1) {
      if (function == RowFunction::kGeglu) {
        for (LockCount part; part < size; part += kRowMultiple) {
          TakeNumbers(CoreStream::kFirst, rows, row, 2 * kRowMultiple);
          geglu_row(row, kRowMultiple, halves);
          PutHalves(halves, output, kRowMultiple);
        }
        continue;
      }
      TakeNumbers(CoreStream::kFirst, rows, row, size);
      if (function == RowFunction::kRope) {
        for (LockCount head; head < static_cast<unsigned>(work.num_heads); head += 1) {
          TakeNumbers(CoreStream::kFirst, rows, second, size);
          rope_head(second, weights, row, row + size / 2, size, work.epsilon, halves);
          PutHalves(halves, output, size);
        }
        continue;
      }
      const float factor = norm_factor(row, size, work.inverse_count, work.epsilon);
      if (function == RowFunction::kNorm) {
        for (LockCount part; part < size; part += kRowMultiple) {
          norm_part(row + part, weights + part, kRowMultiple, factor, halves);
          PutHalves(halves, output, kRowMultiple);
        }
        continue;
      }
      for (LockCount part; part < size; part += kRowObjectWords) {
        TakeNumbers(CoreStream::kFirst, rows, second, kRowObjectWords);
        norm_add_part(row + part, weights + part, kRowObjectWords, factor, second);
        TakeFree(CoreStream::kOutput);
        CopyWords(second, output.next(), kRowObjectWords);
        output.Turn();
        ReleaseFull(CoreStream::kOutput);
      }
    }
  }
}

// The program of attention's cores: what README.md has a core call, between its locks.
// Build with -DTANDEM_HEAD_DIM=64, 128 or 256.
#define TANDEM_CORE_FUNCTION [[maybe_unused]] static
#define TANDEM_CORE_PROGRAM
#include "services/npu_worker/kernels/aie/attention.cc"

#include "services/npu_worker/kernels/aie/core_program.h"

// parameters: AttentionParameters.  The output leaves from where the queries came to: its DMA frees the
// queries' buffer.
extern "C" void TANDEM_PROGRAM(const AttentionParameters* parameters, bfloat16* queries,
                               bfloat16* keys, bfloat16* values, float* sums, float* scores,
                               bfloat16* probabilities, AttentionState* state) {
  while (true) {
    TakeLock(kCoreParameterLock, 1);
    const AttentionParameters work = *parameters;
    TakeFull(CoreStream::kFirst);
    attention_begin(state, sums);
    int32 first_key = work.first_key;
    for (LockCount tile; tile < static_cast<unsigned>(work.num_tiles); tile += 1) {
      TakeFull(CoreStream::kSecond);
      attention_keys(&work, first_key, queries, keys, scores, probabilities, state);
      ReleaseFree(CoreStream::kSecond);
      TakeFull(CoreStream::kSecond);
      attention_values(&work, first_key, probabilities, values, state, sums);
      ReleaseFree(CoreStream::kSecond);
      first_key += static_cast<int32>(kAttentionKeys);
    }
    attention_end(state, sums, queries);
    ReleaseFull(CoreStream::kOutput);
  }
}

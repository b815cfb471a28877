// What one dispatch of a step has to do: multiply-adds, and bytes from memory and from caches.
#pragma once

#include <cstdint>
#include <span>

#include "services/common/step/step_batch.h"
#include "tools/kernel_report/kernel_facts.h"

namespace tandem::report {

struct LaunchWork {
  double macs = 0;              // as the kernel makes them: tiles and passes are whole
  double weight_bytes = 0;      // each once
  double kv_bytes = 0;          // each once a sequence
  double activation_bytes = 0;  // read and written, each once
  double cache_bytes = 0;       // weights, K and V every time that a workgroup reads them
  double useful_flops = 0;      // two a multiply-add of rows that are there
  double subgroups = 1;         // of 32 that have something to do
  bool is_phase = false;        // begins when the dispatch before has ended
  bool is_counted = false;      // and learns that from a dependency counter, not a barrier
};

// `kv_dtype`: of the cache.  REQUIRES the step that the dispatch was submitted for.
LaunchWork WorkOf(const Dispatch& dispatch, const KernelFacts& facts, const StepBatch& step,
                  DType kv_dtype);

}  // namespace tandem::report

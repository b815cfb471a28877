// The programs of cores (../aie/*_program.cc), compiled for the host.
#pragma once

#include <span>
#include <string_view>

namespace tandem::npu {

// The locks of a core's tile, as its program sees them.
class CoreLocks {
 public:
  virtual ~CoreLocks() = default;
  // Returns when the lock counted `count` or more, and has taken as many.  May throw, to end the program.
  virtual void Take(unsigned lock, unsigned count) = 0;
  virtual void Release(unsigned lock, unsigned count) = 0;
};

// Runs a program on the calling thread, over the locks and buffers of its core; it ends with what
// CoreLocks::Take throws.  The thread's rounding mode is the core's.
using CoreProgram = void (*)(CoreLocks& locks, std::span<void* const> buffers);

// By the name in a package's declaration and the generation (3: AIE2, 4: AIE2P); nullptr: another name.
CoreProgram FindCoreProgram(std::string_view name, unsigned generation);

}  // namespace tandem::npu

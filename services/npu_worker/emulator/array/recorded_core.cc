#include "services/npu_worker/emulator/array/recorded_core.h"

#include <utility>

namespace tandem::npu::emulator {

RecordedCore::RecordedCore(CoreProgram program, LockCounts& locks, std::vector<void*> buffers)
    : locks_(locks), buffers_(std::move(buffers)), thread_([this, program] { Run(program); }) {
  turn_of_array_.acquire();
}

RecordedCore::~RecordedCore() {
  ends_ = true;
  turn_of_core_.release();
  thread_.join();
}

void RecordedCore::Run(CoreProgram program) {
  try {
    program(*this, buffers_);
  } catch (const Ended&) {
    return;
  }
}

bool RecordedCore::Advance() {
  if (locks_[awaited_lock_] < awaited_count_) return false;
  turn_of_core_.release();
  turn_of_array_.acquire();
  return true;
}

void RecordedCore::Take(unsigned lock, unsigned count) {
  awaited_lock_ = lock;
  awaited_count_ = count;
  // The program begins with its wait for parameters, so its thread hands over here first.
  do {
    turn_of_array_.release();
    turn_of_core_.acquire();
    if (ends_) throw Ended();
  } while (locks_[lock] < count);
  locks_[lock] -= count;
}

}  // namespace tandem::npu::emulator

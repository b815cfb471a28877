#include "services/npu_worker/emulator/driver/device.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::npu::emulator {

DriverDevice::DriverDevice(const DriverProfile& profile, Faults faults, HandlerFactory make_handler)
    : profile_(profile),
      faults_(faults),
      make_handler_(std::move(make_handler)),
      columns_(profile) {
  const MutexLock lock(mutex_);
  for (int64_t i = 0; i < faults.other_contexts; ++i) {
    uint32_t first = 0;
    if (columns_.Acquire(profile.num_columns - profile.first_column, &first) != 0) break;
  }
}

Errno DriverDevice::Message(const char* message) {
  if (!firmware_answers_) return Refuse(ENODEV, "the firmware has not answered before");
  if (!faults_.LosesNextMessage()) return 0;
  // Without a channel the driver cannot send until it is loaded again.
  firmware_answers_ = false;
  return Refuse(ETIME, absl::StrFormat("no answer of the firmware to '%s'", message));
}

Errno DriverDevice::TellFirmware(const char* message) {
  const MutexLock lock(mutex_);
  return Message(message);
}

Errno DriverDevice::AcquireColumns(uint32_t width, uint32_t* first) {
  const MutexLock lock(mutex_);
  if (const Errno error = columns_.Acquire(width, first); error != 0) return error;
  const Errno error = Message("create a context");
  if (error != 0) columns_.Release(*first, width);
  counts_.most_contexts = std::max(counts_.most_contexts, columns_.num_contexts());
  return error;
}

void DriverDevice::ReleaseColumns(uint32_t first, uint32_t width) {
  const MutexLock lock(mutex_);
  (void)Message("destroy a context");
  columns_.Release(first, width);
}

CommandHandler DriverDevice::MakeHandler(Configurations configurations, uint32_t num_columns) {
  uint64_t id = 0;
  {
    const MutexLock lock(mutex_);
    id = ++num_handlers_;
  }
  CommandHandler handler = make_handler_(configurations, num_columns, [this] {
    const MutexLock lock(mutex_);
    ++counts_.configurations;
  });
  return [this, id, handler = std::move(handler)](const Invocation& invocation,
                                                  const AddressSpace::View& view) {
    CountCommand(id);
    return handler(invocation, view);
  };
}

void DriverDevice::CountCommand(uint64_t handler) {
  const MutexLock lock(mutex_);
  ++counts_.commands;
  if (last_handler_ != 0 && last_handler_ != handler) ++counts_.context_changes;
  last_handler_ = handler;
}

void DriverDevice::CountSubmission() {
  const MutexLock lock(mutex_);
  ++counts_.submissions;
}

DriverCounts DriverDevice::counts() const {
  const MutexLock lock(mutex_);
  DriverCounts counts = counts_;
  counts.open_contexts = columns_.num_contexts();
  return counts;
}

uint32_t DriverDevice::num_contexts() const {
  const MutexLock lock(mutex_);
  return columns_.num_contexts();
}

}  // namespace tandem::npu::emulator

// The emulated NPU below an unmodified XRT 2.13.
//
// XRT loads this library as $XILINX_XRT/lib/libxrt_noop.so.2 when XCL_EMULATION_MODE is "noop".
// It depends on the real libxrt_noop.so.2, which registers XRT's noop device; the bodies of that
// library's buffer and command functions are then redirected here (it is linked -Bsymbolic, so
// that interposing the symbols would not reach it).  x86-64 only; no part of a deployment on
// real hardware.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/buffer_table.h"
#include "services/npu_worker/emulator/code_patch.h"
#include "services/npu_worker/emulator/executor.h"
#include "services/npu_worker/emulator/fault_injection.h"
#include "services/npu_worker/emulator/kernels/kernel_dispatch.h"
#include "services/npu_worker/emulator/xcl_abi.h"

extern "C" unsigned int xclProbe();  // XRT's noop device: makes this library depend on it

namespace tandem::npu::emulator {
namespace {

struct Device {
  Faults faults = Faults::FromEnvironment();
  AddressSpace space;
  BufferTable buffers{space};
  KernelDispatcher dispatcher{faults};
  Executor executor{space, buffers,
                    [this](const Invocation& invocation, const AddressSpace::View& view) {
                      return dispatcher.Run(invocation, view);
                    },
                    faults};
};

// Never destroyed: XRT frees buffers in destructors of its own statics.
Device& TheDevice() {
  static Device* const device = new Device;
  return *device;
}

template <typename T>
T ValueOr(const absl::StatusOr<T>& value, T otherwise) {
  if (value.ok()) return *value;
  std::fprintf(stderr, "npu emulator: %s\n", value.status().ToString().c_str());
  return otherwise;
}

XclBuffer AllocBO(XclDevice, size_t size, int, unsigned flags) {
  const bool is_command = (flags & kXclCommandBufferFlag) != 0;
  return ValueOr(TheDevice().buffers.Allocate(size, flags, !is_command), kXclNullBuffer);
}

XclBuffer AllocUserPtrBO(XclDevice, void* host, size_t size, unsigned flags) {
  if (TheDevice().faults.no_user_pointers) return kXclNullBuffer;
  return ValueOr(TheDevice().buffers.Wrap(host, size, flags), kXclNullBuffer);
}

void FreeBO(XclDevice, XclBuffer handle) { TheDevice().buffers.Free(handle); }

void* MapBO(XclDevice, XclBuffer handle, bool) {
  const auto buffer = TheDevice().buffers.Find(handle);
  return buffer == nullptr ? nullptr : buffer->host;
}

int UnmapBO(XclDevice, XclBuffer, void*) { return 0; }

// Host and device share memory: the range is checked and the order made sure of.
int SyncBO(XclDevice, XclBuffer handle, int, size_t size, size_t offset) {
  const auto buffer = TheDevice().buffers.Find(handle);
  if (buffer == nullptr || offset > buffer->bytes || size > buffer->bytes - offset) return -EINVAL;
  TheDevice().executor.Synchronize();
  return 0;
}

int CopyBO(XclDevice, XclBuffer to, XclBuffer from, size_t size, size_t to_offset,
           size_t from_offset) {
  const auto target = TheDevice().buffers.Find(to);
  const auto source = TheDevice().buffers.Find(from);
  if (target == nullptr || source == nullptr) return -EINVAL;
  const auto into = Within({target->host, target->bytes}, to_offset, size, "copy");
  const auto out_of = Within({source->host, source->bytes}, from_offset, size, "copy");
  if (!into.ok() || !out_of.ok()) return -EINVAL;
  std::memmove(into->data(), out_of->data(), size);
  return 0;
}

int GetBOProperties(XclDevice, XclBuffer handle, XclBufferProperties* properties) {
  const auto buffer = TheDevice().buffers.Find(handle);
  if (buffer == nullptr) return -EINVAL;
  *properties = {handle, buffer->flags, buffer->bytes, buffer->address, 0};
  return 0;
}

XclExport ExportBO(XclDevice, XclBuffer handle) {
  return ValueOr(TheDevice().buffers.Export(handle), kXclNullExport);
}

XclBuffer ImportBO(XclDevice, XclExport fd, unsigned flags) {
  return ValueOr(TheDevice().buffers.Import(fd, flags), kXclNullBuffer);
}

int CloseExportHandle(XclExport fd) { return ::close(fd); }

int ExecBuf(XclDevice, XclBuffer command) {
  return TheDevice().executor.Submit(command) ? 0 : -EINVAL;
}

int ExecWait(XclDevice, int timeout_ms) {
  const absl::Duration timeout =
      timeout_ms < 0 ? absl::InfiniteDuration() : absl::Milliseconds(timeout_ms);
  return TheDevice().executor.WaitForCompletion(timeout) ? 1 : 0;
}

__attribute__((constructor)) void RedirectNoopDevice() {
  volatile auto keep_dependency = &xclProbe;
  (void)keep_dependency;
  const struct {
    const char* symbol;
    void* replacement;
  } redirections[] = {
      {"xclAllocBO", reinterpret_cast<void*>(&AllocBO)},
      {"xclAllocUserPtrBO", reinterpret_cast<void*>(&AllocUserPtrBO)},
      {"xclFreeBO", reinterpret_cast<void*>(&FreeBO)},
      {"xclMapBO", reinterpret_cast<void*>(&MapBO)},
      {"xclUnmapBO", reinterpret_cast<void*>(&UnmapBO)},
      {"xclSyncBO", reinterpret_cast<void*>(&SyncBO)},
      {"xclCopyBO", reinterpret_cast<void*>(&CopyBO)},
      {"xclGetBOProperties", reinterpret_cast<void*>(&GetBOProperties)},
      {"xclExportBO", reinterpret_cast<void*>(&ExportBO)},
      {"xclImportBO", reinterpret_cast<void*>(&ImportBO)},
      {"_Z20xclCloseExportHandlei", reinterpret_cast<void*>(&CloseExportHandle)},
      {"xclExecBuf", reinterpret_cast<void*>(&ExecBuf)},
      {"xclExecWait", reinterpret_cast<void*>(&ExecWait)},
  };
  // Half redirected, buffers of one side would meet functions of the other.
  for (const auto& [symbol, replacement] : redirections) {
    if (!RedirectFunction(symbol, replacement)) std::_Exit(70);
  }
}

}  // namespace
}  // namespace tandem::npu::emulator

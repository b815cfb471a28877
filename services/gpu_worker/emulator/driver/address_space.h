// The GPU's virtual memory: which addresses are mapped, and where on the host their bytes are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>

#include "services/gpu_worker/emulator/isa/dispatch.h"

namespace tandem::rdna {

// Addresses have 48 bits; those above are the sign's, and are not looked at.  Thread-safe.
class AddressSpace : public Memory {
 public:
  // false: `bytes` is zero, or some of the range is mapped.
  bool Map(uint64_t address, uint64_t bytes, std::byte* host);
  // Removes the mappings in the range; mappings that reach beyond it keep the rest.
  void Unmap(uint64_t address, uint64_t bytes);

  std::byte* Find(uint64_t address, uint64_t bytes) override;

  uint64_t mapped_bytes() const;

 private:
  struct Mapping {
    uint64_t begin = 0, end = 0;
    std::byte* host = nullptr;  // of `begin`
  };
  struct Cache;  // the mappings that a thread used last

  void Changed();

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Mapping> mappings_;  // by their begin
  // Of this state of the table; no two states of any table have the same.
  std::atomic<uint64_t> generation_ = 0;
};

}  // namespace tandem::rdna

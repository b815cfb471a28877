#include "services/gpu_worker/emulator/driver/address_space.h"

#include <array>
#include <mutex>

namespace tandem::rdna {
namespace {

constexpr uint64_t kAddressMask = (uint64_t{1} << 48) - 1;

std::atomic<uint64_t> last_generation = 0;

}  // namespace

struct AddressSpace::Cache {
  uint64_t generation = 0;
  std::array<Mapping, 4> used;
  unsigned oldest = 0;
};

bool AddressSpace::Map(uint64_t address, uint64_t bytes, std::byte* host) {
  address &= kAddressMask;
  if (bytes == 0 || bytes > kAddressMask + 1 - address) return false;
  const std::unique_lock lock(mutex_);
  const auto next = mappings_.lower_bound(address + bytes);
  if (next != mappings_.begin() && std::prev(next)->second.end > address) return false;
  mappings_.emplace(address, Mapping{address, address + bytes, host});
  Changed();
  return true;
}

void AddressSpace::Unmap(uint64_t address, uint64_t bytes) {
  address &= kAddressMask;
  const uint64_t end = bytes > kAddressMask + 1 - address ? kAddressMask + 1 : address + bytes;
  const std::unique_lock lock(mutex_);
  auto it = mappings_.upper_bound(address);
  if (it != mappings_.begin()) --it;
  while (it != mappings_.end() && it->second.begin < end) {
    const Mapping mapping = it->second;
    if (mapping.end <= address) {
      ++it;
      continue;
    }
    it = mappings_.erase(it);
    if (mapping.begin < address) {
      mappings_.emplace(mapping.begin, Mapping{mapping.begin, address, mapping.host});
    }
    if (end < mapping.end) {
      mappings_.emplace(end, Mapping{end, mapping.end, mapping.host + (end - mapping.begin)});
    }
  }
  Changed();
}

void AddressSpace::Changed() { generation_.store(++last_generation, std::memory_order_release); }

std::byte* AddressSpace::Find(uint64_t address, uint64_t bytes) {
  // The library is loaded at start, so that this needs no call.
  [[gnu::tls_model("initial-exec")]] thread_local Cache cache;
  address &= kAddressMask;
  const uint64_t generation = generation_.load(std::memory_order_acquire);
  if (cache.generation != generation) cache = {.generation = generation};
  for (const Mapping& mapping : cache.used) {
    if (address >= mapping.begin && address < mapping.end) {
      return bytes <= mapping.end - address ? mapping.host + (address - mapping.begin) : nullptr;
    }
  }
  const std::shared_lock lock(mutex_);
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return nullptr;
  const Mapping& mapping = std::prev(it)->second;
  if (address >= mapping.end) return nullptr;
  // Another thread may have changed the table since `generation` was read: then this thread's next
  // call starts over.
  cache.used[cache.oldest++ % cache.used.size()] = mapping;
  return bytes <= mapping.end - address ? mapping.host + (address - mapping.begin) : nullptr;
}

uint64_t AddressSpace::mapped_bytes() const {
  const std::shared_lock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [begin, mapping] : mappings_) bytes += mapping.end - mapping.begin;
  return bytes;
}

}  // namespace tandem::rdna

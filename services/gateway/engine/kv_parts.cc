#include "services/gateway/engine/kv_parts.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

namespace tandem::gateway {
namespace {

// A part of this size takes many times as long as the start of a thread.
constexpr size_t kLeastBytes = size_t{2} << 20;

}  // namespace

void ForParts(size_t count, size_t bytes_each, size_t num_threads,
              const std::function<void(size_t begin, size_t end)>& work) {
  const size_t parts =
      std::max<size_t>(1, std::min({num_threads, count, count * bytes_each / kLeastBytes}));
  std::vector<std::thread> others;
  others.reserve(parts);
  size_t end = count;
  try {
    for (size_t part = parts - 1; part > 0; --part) {
      const size_t begin = count * part / parts;
      others.emplace_back(work, begin, end);
      end = begin;
    }
  } catch (const std::system_error&) {
    // No more threads here: the rest is done on this one.
  }
  work(0, end);
  for (std::thread& other : others) other.join();
}

size_t KvThreads() {
  const size_t processors = std::max(1u, std::thread::hardware_concurrency());
  return std::min<size_t>(4, (processors + 1) / 2);
}

}  // namespace tandem::gateway

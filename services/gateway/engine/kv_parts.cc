#include "services/gateway/engine/kv_parts.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace tandem::gateway {
namespace {

constexpr size_t kMostThreads = 4;
// A part of this size takes many times as long as the start of a thread.
constexpr size_t kLeastBytes = size_t{2} << 20;

}  // namespace

void ForParts(size_t count, size_t bytes_each,
              const std::function<void(size_t begin, size_t end)>& work) {
  const size_t processors = std::max(1u, std::thread::hardware_concurrency());
  const size_t parts = std::max<size_t>(
      1, std::min({kMostThreads, (processors + 1) / 2, count, count * bytes_each / kLeastBytes}));
  std::vector<std::thread> others;
  for (size_t part = 1; part < parts; ++part) {
    others.emplace_back(work, count * part / parts, count * (part + 1) / parts);
  }
  work(0, count / parts);
  for (std::thread& other : others) other.join();
}

}  // namespace tandem::gateway

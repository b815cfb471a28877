// Work over the bytes of KV on several threads: one alone copies a third of what memory and bus carry.
#pragma once

#include <cstddef>
#include <functional>

namespace tandem::gateway {

// Calls `work(begin, end)` for parts of [0, count) that are all of it together, on up to `num_threads`
// threads.  `bytes_each`: of an item; few bytes are one part, on the calling thread.  Returns when all
// is done.
void ForParts(size_t count, size_t bytes_each, size_t num_threads,
              const std::function<void(size_t begin, size_t end)>& work);

// For copies of KV: half of the processors, four at most.
size_t KvThreads();

}  // namespace tandem::gateway

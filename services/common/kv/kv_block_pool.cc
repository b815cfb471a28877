#include "services/common/kv/kv_block_pool.h"

#include "services/common/base/check.h"

namespace tandem {

KvBlockPool::KvBlockPool(uint32_t num_blocks) : in_use_(num_blocks, false) {
  free_.reserve(num_blocks);
  for (uint32_t block = num_blocks; block > 0; --block) free_.push_back(block - 1);
}

uint32_t KvBlockPool::Allocate() {
  if (free_.empty()) return kNoBlock;
  const uint32_t block = free_.back();
  free_.pop_back();
  in_use_[block] = true;
  return block;
}

void KvBlockPool::Free(uint32_t block) {
  TANDEM_CHECK(block < in_use_.size());
  TANDEM_CHECK(in_use_[block]);
  in_use_[block] = false;
  free_.push_back(block);
}

}  // namespace tandem

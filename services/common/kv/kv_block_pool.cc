#include "services/common/kv/kv_block_pool.h"

#include "services/common/base/check.h"

namespace tandem {
namespace {

// Passed blocks are evicted first while they are at least one in so many of the cache.
constexpr uint32_t kPassedShare = 8;

}  // namespace

KvBlockPool::KvBlockPool(uint32_t num_blocks) : blocks_(num_blocks) {
  free_.reserve(num_blocks);
  for (uint32_t block = num_blocks; block > 0; --block) free_.push_back(block - 1);
}

uint32_t KvBlockPool::Allocate() {
  if (free_.empty()) return kNoBlock;
  const uint32_t id = free_.back();
  free_.pop_back();
  blocks_[id].num_holders = 1;
  blocks_[id].at_fork = false;
  return id;
}

void KvBlockPool::Share(uint32_t id) {
  TANDEM_CHECK(id < blocks_.size());
  Block& block = blocks_[id];
  TANDEM_CHECK(block.num_holders > 0 || block.kept);
  if (block.num_holders == 0) Unlink(id);
  ++block.num_holders;
}

void KvBlockPool::Free(uint32_t id, bool passed) {
  TANDEM_CHECK(id < blocks_.size());
  Block& block = blocks_[id];
  TANDEM_CHECK(block.num_holders > 0);
  if (--block.num_holders > 0) return;
  if (!block.kept) return free_.push_back(id);
  block.passed = passed && !block.at_fork;
  Append(id);
}

void KvBlockPool::Keep(uint32_t id) {
  TANDEM_CHECK(id < blocks_.size());
  TANDEM_CHECK(blocks_[id].num_holders > 0);
  blocks_[id].kept = true;
}

void KvBlockPool::MarkFork(uint32_t id) {
  TANDEM_CHECK(id < blocks_.size());
  Block& block = blocks_[id];
  TANDEM_CHECK(block.num_holders > 0 || block.kept);
  block.at_fork = true;
  if (block.num_holders > 0 || !block.passed) return;
  Unlink(id);
  block.passed = false;
  Append(id);
}

void KvBlockPool::Forget(uint32_t id) {
  TANDEM_CHECK(id < blocks_.size());
  TANDEM_CHECK(blocks_[id].kept);
  blocks_[id].kept = false;
  if (blocks_[id].num_holders > 0) return;
  Unlink(id);
  free_.push_back(id);
}

uint32_t KvBlockPool::NextVictim() const {
  const bool passed = passed_.size > 0 && uint64_t{kPassedShare} * passed_.size >= num_cached();
  if (passed || ended_.size == 0) return passed_.head;
  return ended_.head;
}

void KvBlockPool::Append(uint32_t id) {
  Block& block = blocks_[id];
  List& list = ListOf(block);
  block.previous = list.tail;
  block.next = kNoBlock;
  (list.tail == kNoBlock ? list.head : blocks_[list.tail].next) = id;
  list.tail = id;
  ++list.size;
}

void KvBlockPool::Unlink(uint32_t id) {
  const Block& block = blocks_[id];
  List& list = ListOf(block);
  (block.previous == kNoBlock ? list.head : blocks_[block.previous].next) = block.next;
  (block.next == kNoBlock ? list.tail : blocks_[block.next].previous) = block.previous;
  --list.size;
}

}  // namespace tandem

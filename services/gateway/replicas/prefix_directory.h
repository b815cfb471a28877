// Which replica has which prefixes of prompts in its KV cache, as far as a router can know.
//
// It remembers, for each replica, the blocks of the prompts that were sent there and of the answers
// that ended there, the latest as many as its KV cache has blocks.  So it also knows of a prompt that
// is being computed; it does not know when blocks were evicted early.  A wrong guess costs the time to
// compute the prefix again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::gateway {

// Of the whole blocks of a prompt, each with all before it.  Different prefixes, or equal ones of
// different scopes, have different keys but for one in 2^64.
using PrefixKeys = std::vector<uint64_t>;

// `tokens`: a picture's rows have its key.  REQUIRES block_tokens > 0.
PrefixKeys PrefixKeysOf(std::string_view scope, std::span<const uint32_t> tokens,
                        uint32_t block_tokens);

// Single-thread.
class PrefixDirectory {
 public:
  // Blocks that the KV cache of a replica has.
  void SetCapacity(uint32_t replica, size_t num_blocks);
  // How many leading blocks the replica has.
  size_t Find(uint32_t replica, const PrefixKeys& keys) const;
  // A prompt was sent there, or ended there with its answer.
  void Add(uint32_t replica, const PrefixKeys& keys);
  // Its KV cache is lost, or it has left.
  void Forget(uint32_t replica);

 private:
  struct Held {
    size_t capacity = 0;
    std::list<uint64_t> uses;  // the latest first
    std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places;
  };
  static void Trim(Held& held);

  std::map<uint32_t, Held> replicas_;
};

}  // namespace tandem::gateway

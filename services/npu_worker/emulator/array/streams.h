// What array designs are made of: streams from shim channels to cores and back, with bounded room
// on the way.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "services/npu_worker/emulator/array/shim_dma.h"

namespace tandem::npu::emulator {

// A channel's words on their way to several cores: each core gets all of them.  Thread-compatible.
class Broadcast {
 public:
  // At most `room` words wait between the channel and the slowest core.  `dma`: borrowed, must
  // outlive this.
  Broadcast(ShimDma& dma, uint32_t channel, uint32_t num_cores, size_t room)
      : dma_(&dma), channel_(channel), room_(room), positions_(num_cores, 0) {}

  // Fills `words` for a core.  False: not all of them can be had now; those that can wait for the rest.
  bool Take(uint32_t core, std::span<uint32_t> words);

 private:
  ShimDma* dma_;
  uint32_t channel_;
  size_t room_;
  std::deque<uint32_t> waiting_;
  uint64_t first_ = 0;               // the number of the first word in waiting_
  std::vector<uint64_t> positions_;  // of each core's next word
};

// A channel's words on their way to several cores: an object for each core in turn.
// Thread-compatible.
class Deal {
 public:
  // `dma`: borrowed, must outlive this.
  Deal(ShimDma& dma, uint32_t channel, uint32_t num_cores)
      : dma_(&dma), channel_(channel), num_cores_(num_cores) {}

  // Fills `words`, the next object.  False: it is another core's turn, or not all is there.
  bool Take(uint32_t core, std::span<uint32_t> words);

 private:
  ShimDma* dma_;
  uint32_t channel_;
  uint32_t num_cores_;
  uint32_t turn_ = 0;
};

// Tiles of several cores on their way into one channel: one of each core in turn.
// Thread-compatible.
class Join {
 public:
  // `dma`: borrowed, must outlive this.
  Join(ShimDma& dma, uint32_t channel, uint32_t num_cores)
      : dma_(&dma), channel_(channel), tiles_(num_cores) {}

  // False: the core's last tile has not left yet.
  bool Put(uint32_t core, std::span<const uint32_t> tile);
  // Hands on what the channel's tasks have room for.  False: nothing.
  bool Flush();

 private:
  ShimDma* dma_;
  uint32_t channel_;
  std::vector<std::vector<uint32_t>> tiles_;
  uint32_t turn_ = 0;
  size_t position_ = 0;  // within the tile whose turn it is
};

}  // namespace tandem::npu::emulator

// The packets that read and write memory.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "services/gpu_worker/emulator/driver/command_processor.h"
#include "services/gpu_worker/emulator/driver/pm4.h"

namespace tandem::rdna {
namespace {

uint32_t LoadWord(const std::byte* at) {
  // The host or another ring may be writing it.
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(const_cast<std::byte*>(at)))
      .load(std::memory_order_acquire);
}

bool WaitIsOver(uint32_t function, uint32_t value, uint32_t reference) {
  switch (function) {
    case 0:
      return true;
    case 1:
      return value < reference;
    case 2:
      return value <= reference;
    case 3:
      return value == reference;
    case 4:
      return value != reference;
    case 5:
      return value >= reference;
    case 6:
      return value > reference;
    default:
      return false;
  }
}

}  // namespace

std::byte* CommandProcessor::Find(uint64_t address, uint64_t bytes, const char* packet,
                                  Result& failure) {
  std::byte* at = memory_.Find(address, bytes);
  if (at == nullptr) {
    failure = Failure{
        .what = std::string(packet) + " of " + std::to_string(bytes) + " bytes that are not mapped",
        .address = address};
  }
  return at;
}

CommandProcessor::Result CommandProcessor::Store(uint64_t address, uint64_t value, uint32_t bytes,
                                                 const char* packet) {
  Result failure;
  std::byte* at = Find(address, bytes, packet, failure);
  if (at == nullptr) return failure;
  // In one piece where it can be: the host polls for it.
  if (bytes == 8 && address % 8 == 0) {
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at)).store(value);
  } else if (bytes == 4 && address % 4 == 0) {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(at)).store(static_cast<uint32_t>(value));
  } else {
    std::memcpy(at, &value, bytes);
  }
  return std::nullopt;
}

CommandProcessor::Result CommandProcessor::WriteData(Words body) {
  constexpr uint32_t kMemoryOfGrbm = 1, kL2 = 2, kMemory = 5;
  const uint32_t destination = body[0] >> 8 & 0xf;
  if (destination != kMemory && destination != kL2 && destination != kMemoryOfGrbm) {
    return Unknown("WRITE_DATA to destination " + std::to_string(destination));
  }
  const bool one_address = (body[0] >> 16 & 1) != 0;
  const uint64_t address = pm4::Wide(body[1], body[2]);
  for (uint32_t i = 3; i < body.size(); ++i) {
    const uint64_t to = one_address ? address : address + uint64_t{i - 3} * 4;
    if (Result failure = Store(to, body[i], 4, "WRITE_DATA")) return failure;
  }
  return std::nullopt;
}

CommandProcessor::Result CommandProcessor::CopyData(Words body) {
  constexpr uint32_t kFromMemory = 1, kFromL2 = 2, kImmediate = 5, kTimestamp = 9;
  constexpr uint32_t kToGrbmMemory = 1, kToL2 = 2, kToMemory = 5;
  const uint32_t source = body[0] & 0xf, destination = body[0] >> 8 & 0xf;
  const uint32_t bytes = (body[0] >> 16 & 1) != 0 ? 8 : 4;
  uint64_t value = 0;
  if (source == kFromMemory || source == kFromL2) {
    Result failure;
    const std::byte* from = Find(pm4::Wide(body[1], body[2]), bytes, "COPY_DATA", failure);
    if (from == nullptr) return failure;
    std::memcpy(&value, from, bytes);
  } else if (source == kImmediate) {
    value = bytes == 8 ? pm4::Wide(body[1], body[2]) : body[1];
  } else if (source == kTimestamp) {
    value = clock_.Ticks();
  } else {
    return Unknown("COPY_DATA from source " + std::to_string(source));
  }
  if (destination != kToMemory && destination != kToL2 && destination != kToGrbmMemory) {
    return Unknown("COPY_DATA to destination " + std::to_string(destination));
  }
  return Store(pm4::Wide(body[3], body[4]), value, bytes, "COPY_DATA");
}

CommandProcessor::Result CommandProcessor::DmaData(Words body) {
  constexpr uint32_t kFromMemory = 0, kFromData = 2, kFromL2 = 3;
  constexpr uint32_t kToMemory = 0, kNowhere = 2, kToL2 = 3;
  const uint32_t source = body[0] >> 29 & 3, destination = body[0] >> 20 & 3;
  const uint32_t bytes = body[5] & 0x3ffffff;
  if ((body[5] >> 26 & 0xf) != 0) {
    return Unknown("DMA_DATA with command " + Hex(body[5]) +
                   ": of registers, or without increment");
  }
  if (destination == kNowhere || bytes == 0) return std::nullopt;  // a prefetch; a wait
  if (destination != kToMemory && destination != kToL2) {
    return Unknown("DMA_DATA to destination " + std::to_string(destination));
  }
  Result failure;
  std::byte* to = Find(pm4::Wide(body[3], body[4]), bytes, "DMA_DATA to memory", failure);
  if (to == nullptr) return failure;
  if (source == kFromData) {
    for (uint32_t i = 0; i < bytes; i += 4) std::memcpy(to + i, &body[1], std::min(4u, bytes - i));
  } else if (source == kFromMemory || source == kFromL2) {
    const std::byte* from =
        Find(pm4::Wide(body[1], body[2]), bytes, "DMA_DATA from memory", failure);
    if (from == nullptr) return failure;
    std::memmove(to, from, bytes);
  } else {
    return Unknown("DMA_DATA from source " + std::to_string(source));
  }
  clock_.Advance(CopyNanoseconds(options_.chip, bytes));
  return std::nullopt;
}

CommandProcessor::Result CommandProcessor::ReleaseMem(Words body) {
  constexpr uint32_t kNothing = 0, kValue32 = 1, kValue64 = 2, kTimestamp = 3;
  const uint32_t destination = body[1] >> 16 & 3, data = body[1] >> 29;
  if (data == kNothing) return std::nullopt;
  if (destination > 1) {
    return Unknown("RELEASE_MEM to destination " + std::to_string(destination));
  }
  const uint64_t address = pm4::Wide(body[2], body[3]);
  switch (data) {
    case kValue32:
      return Store(address, body[4], 4, "RELEASE_MEM");
    case kValue64:
      return Store(address, pm4::Wide(body[4], body[5]), 8, "RELEASE_MEM");
    case kTimestamp:
      return Store(address, clock_.Ticks(), 8, "RELEASE_MEM");
    default:
      return Unknown("RELEASE_MEM of data " + std::to_string(data));
  }
}

CommandProcessor::Result CommandProcessor::WaitRegMem(Words body) {
  const uint32_t function = body[0] & 7, space = body[0] >> 4 & 3, operation = body[0] >> 6 & 3;
  if (space != 1 || operation != 0 || function > 6) {
    return Unknown("WAIT_REG_MEM with control " + Hex(body[0]) + ": not a wait for memory");
  }
  const uint64_t address = pm4::Wide(body[1], body[2]) & ~uint64_t{3};
  const uint32_t reference = body[3], mask = body[4];
  Result failure;
  const std::byte* at = Find(address, 4, "WAIT_REG_MEM", failure);
  if (at == nullptr) return failure;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.hang_ms);
  while (!WaitIsOver(function, LoadWord(at) & mask, reference)) {
    if (stop_.load() || std::chrono::steady_clock::now() > end) {
      return Failure{.kind = Failure::Kind::kHang,
                     .what = "WAIT_REG_MEM: " + Hex(LoadWord(at)) + " under " + Hex(mask) +
                             " did not become what it waits for, " + Hex(reference),
                     .address = address};
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return std::nullopt;
}

}  // namespace tandem::rdna

// Writes packets into emulated memory, and runs them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <vector>

#include "services/gpu_worker/emulator/driver/address_space.h"
#include "services/gpu_worker/emulator/driver/command_processor.h"
#include "services/gpu_worker/emulator/driver/pm4.h"

namespace tandem::rdna {

// 64 KiB of memory at kBase; packets lie at its start, data from kData on.
class PacketBench {
 public:
  static constexpr uint64_t kBase = 0xffff800100000000, kBytes = 64 << 10;

  explicit PacketBench(uint64_t hang_ms = 10'000)
      : memory_(kBytes / 8),
        processor_(space_, clock_,
                   [this](const Dispatch& dispatch) -> std::optional<Failure> {
                     dispatches.push_back(dispatch);
                     return dispatch_result;
                   },
                   {.hang_ms = hang_ms}) {
    space_.Map(kBase, kBytes, bytes());
  }

  void Packet(pm4::Opcode opcode, std::initializer_list<uint32_t> body) {
    Word(pm4::Header(opcode, static_cast<uint32_t>(body.size())));
    for (const uint32_t word : body) Word(word);
  }
  void Word(uint32_t word) { std::memcpy(bytes() + 4 * count_++, &word, 4); }
  // Goes on at `address`; `at` of Run is that.
  void Seek(uint64_t address) { count_ = static_cast<uint32_t>((address - kBase) / 4); }

  std::optional<Failure> Run() { return Run(kBase, count_); }
  std::optional<Failure> Run(uint64_t address, uint32_t words) {
    return processor_.Run(address, words);
  }

  template <typename T>
  T Read(uint64_t address) {
    T value;
    std::memcpy(&value, space_.Find(address, sizeof value), sizeof value);
    return value;
  }
  template <typename T>
  void Write(uint64_t address, T value) {
    std::memcpy(space_.Find(address, sizeof value), &value, sizeof value);
  }

  // While packets run.
  void WriteAtomic(uint64_t address, uint32_t value) {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(space_.Find(address, 4))).store(value);
  }

  std::vector<Dispatch> dispatches;
  std::optional<Failure> dispatch_result;

  CommandProcessor& processor() { return processor_; }
  DeviceClock& clock() { return clock_; }

 private:
  std::byte* bytes() { return reinterpret_cast<std::byte*>(memory_.data()); }

  std::vector<uint64_t> memory_;
  AddressSpace space_;
  DeviceClock clock_;
  CommandProcessor processor_;
  uint32_t count_ = 0;
};

inline constexpr uint64_t kBenchData = PacketBench::kBase + (32 << 10);

inline uint32_t Low(uint64_t address) { return static_cast<uint32_t>(address); }
inline uint32_t High(uint64_t address) { return static_cast<uint32_t>(address >> 32); }

}  // namespace tandem::rdna

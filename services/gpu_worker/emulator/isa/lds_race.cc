#include "services/gpu_worker/emulator/isa/lds_race.h"

#include <algorithm>
#include <limits>

namespace tandem::rdna {

void LdsRaceCheck::BeginGroup(uint32_t bytes) {
  PassBarrier();
  if (contested_.size() < bytes) {
    for (Uses* uses : {&writes_, &reads_, &atomics_}) uses->resize(bytes);
    contested_.resize(bytes);
  }
  std::fill(contested_.begin(), contested_.end(), 0);
}

void LdsRaceCheck::PassBarrier() {
  constexpr int32_t kEpoch = kSeveralWaves + 1;
  if (epoch_ > std::numeric_limits<int32_t>::max() - 2 * kEpoch) {
    for (Uses* uses : {&writes_, &reads_, &atomics_}) std::fill(uses->begin(), uses->end(), 0);
    epoch_ = 0;
  }
  epoch_ += kEpoch;
}

std::string LdsRaceCheck::Describe(const char* verb, uint32_t wave, const char* earlier,
                                   int32_t use, uint32_t address) {
  const int32_t user = use & kSeveralWaves;
  const std::string who =
      user == kSeveralWaves ? "several waves have" : "wave " + std::to_string(user) + " has";
  return "LDS race: wave " + std::to_string(wave) + " " + verb + " byte " +
         std::to_string(address) + ", which " + who + " " + earlier + " since the last barrier";
}

std::string LdsRaceCheck::DescribeRead(const char* verb, uint32_t wave, uint32_t address,
                                       uint32_t bytes, const Uses& others,
                                       const char* earlier) const {
  const int32_t mine = UseBy(wave);
  for (uint32_t at = address; at < address + bytes; ++at) {
    if (contested_[at] != 0) {
      return "LDS race: wave " + std::to_string(wave) + " " + verb + " byte " + std::to_string(at) +
             ", to which waves wrote different values without a barrier between them";
    }
    if (IsOthers(writes_[at], mine)) return Describe(verb, wave, "written", writes_[at], at);
    if (IsOthers(others[at], mine)) return Describe(verb, wave, earlier, others[at], at);
  }
  return {};
}

std::optional<std::string> LdsRaceCheck::Write(uint32_t wave, uint32_t address, uint32_t bytes,
                                               const std::byte* before, const std::byte* after) {
  const int32_t mine = UseBy(wave);
  for (uint32_t index = 0; index < bytes; ++index) {
    const uint32_t at = address + index;
    const bool changes = before[index] != after[index];
    if (changes && IsOthers(reads_[at], mine)) {
      return Describe("writes", wave, "read", reads_[at], at);
    }
    if (IsOthers(atomics_[at], mine)) return Describe("writes", wave, "changed", atomics_[at], at);
    if (IsOthers(writes_[at], mine)) {
      if (changes) contested_[at] = 1;
    } else if (writes_[at] < epoch_) {
      contested_[at] = 0;
    }
    Note<1>(writes_, wave, at);
  }
  return std::nullopt;
}

}  // namespace tandem::rdna

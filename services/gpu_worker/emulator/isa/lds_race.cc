#include "services/gpu_worker/emulator/isa/lds_race.h"

#include <algorithm>

namespace tandem::rdna {
namespace {

constexpr uint32_t kSeveralWaves = ~0u;

}  // namespace

void LdsRaceCheck::BeginGroup(uint32_t bytes) {
  ++epoch_;
  if (bytes_.size() < bytes) bytes_.resize(bytes);
  for (Byte& byte : bytes_) byte.contested = false;
}

void LdsRaceCheck::Note(Use& use, uint32_t wave) const {
  use.wave = ByAnother(use, wave) ? kSeveralWaves : wave;
  use.epoch = epoch_;
}

std::string LdsRaceCheck::Race(const char* verb, uint32_t wave, const char* earlier,
                               const Use& other, uint32_t address) const {
  const std::string who = other.wave == kSeveralWaves
                              ? "several waves have"
                              : "wave " + std::to_string(other.wave) + " has";
  return "LDS race: wave " + std::to_string(wave) + " " + verb + " byte " +
         std::to_string(address) + ", which " + who + " " + earlier + " since the last barrier";
}

std::optional<std::string> LdsRaceCheck::Read(uint32_t wave, uint32_t address, uint32_t bytes) {
  for (uint32_t at = address; at < address + bytes; ++at) {
    Byte& byte = bytes_[at];
    if (byte.contested) {
      return "LDS race: wave " + std::to_string(wave) + " reads byte " + std::to_string(at) +
             ", to which waves wrote different values without a barrier between them";
    }
    if (ByAnother(byte.write, wave)) return Race("reads", wave, "written", byte.write, at);
    if (ByAnother(byte.atomic, wave)) return Race("reads", wave, "changed", byte.atomic, at);
    Note(byte.read, wave);
  }
  return std::nullopt;
}

std::optional<std::string> LdsRaceCheck::Write(uint32_t wave, uint32_t address, uint32_t bytes,
                                               const std::byte* before, const std::byte* after) {
  for (uint32_t index = 0; index < bytes; ++index) {
    const uint32_t at = address + index;
    Byte& byte = bytes_[at];
    const bool changes = before[index] != after[index];
    if (changes && ByAnother(byte.read, wave)) {
      return Race("writes", wave, "read", byte.read, at);
    }
    if (ByAnother(byte.atomic, wave)) return Race("writes", wave, "changed", byte.atomic, at);
    if (ByAnother(byte.write, wave)) {
      byte.contested = byte.contested || changes;
    } else if (byte.write.epoch != epoch_) {
      byte.contested = false;
    }
    Note(byte.write, wave);
  }
  return std::nullopt;
}

std::optional<std::string> LdsRaceCheck::Change(uint32_t wave, uint32_t address, uint32_t bytes) {
  for (uint32_t at = address; at < address + bytes; ++at) {
    Byte& byte = bytes_[at];
    if (byte.contested) {
      return "LDS race: wave " + std::to_string(wave) + " changes byte " + std::to_string(at) +
             ", to which waves wrote different values without a barrier between them";
    }
    if (ByAnother(byte.write, wave)) return Race("changes", wave, "written", byte.write, at);
    if (ByAnother(byte.read, wave)) return Race("changes", wave, "read", byte.read, at);
    Note(byte.atomic, wave);
  }
  return std::nullopt;
}

}  // namespace tandem::rdna

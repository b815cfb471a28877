#include "services/gpu_worker/emulator/driver/command_processor.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "services/gpu_worker/emulator/driver/pm4.h"

namespace tandem::rdna {
namespace {

// More are a loop: on hardware the ring's time-out ends it.
constexpr uint32_t kMaxBuffers = 1 << 16;
// A submission's buffer calls one that calls no further.
constexpr size_t kMaxDepth = 2;

constexpr uint32_t kChain = 1 << 20, kSizeMask = kChain - 1;

}  // namespace

std::string Hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

CommandProcessor::CommandProcessor(Memory& memory, DeviceClock& clock, Execute execute,
                                   Options options)
    : memory_(memory), clock_(clock), execute_(std::move(execute)), options_(options) {}

CommandProcessor::Result CommandProcessor::Unknown(std::string what) {
  return Failure{.kind = Failure::Kind::kUnknown, .what = std::move(what)};
}

CommandProcessor::Result CommandProcessor::Run(uint64_t address, uint32_t words) {
  buffers_.clear();
  entered_ = 0;
  skip_predicated_ = false;
  if (Result failure = Enter(address, words, false)) return failure;
  while (!buffers_.empty()) {
    if (buffers_.back().at >= buffers_.back().count) {
      buffers_.pop_back();
    } else if (Result failure = Step()) {
      return failure;
    }
  }
  return std::nullopt;
}

CommandProcessor::Result CommandProcessor::Enter(uint64_t address, uint32_t words, bool replace) {
  if (++entered_ > kMaxBuffers) {
    return Failure{.kind = Failure::Kind::kHang,
                   .what = "the indirect buffers lead to each other without an end",
                   .address = address};
  }
  Result failure;
  const std::byte* bytes = Find(address, uint64_t{words} * 4, "an indirect buffer", failure);
  if (bytes == nullptr) return failure;
  if (address % 4 != 0) {
    return Failure{.what = "an indirect buffer at an odd address", .address = address};
  }
  if (replace) {
    buffers_.pop_back();
  } else if (buffers_.size() == kMaxDepth) {
    return Unknown("INDIRECT_BUFFER three deep");
  }
  buffers_.push_back({address, reinterpret_cast<const uint32_t*>(bytes), words, 0});
  return std::nullopt;
}

CommandProcessor::Result CommandProcessor::Step() {
  Buffer& buffer = buffers_.back();
  const uint64_t address = buffer.address + uint64_t{buffer.at} * 4;
  const uint32_t header = buffer.words[buffer.at++];
  const uint32_t type = header >> 30;
  if (type == 2) return std::nullopt;  // one word of padding
  if (type != 3) {
    return Unknown("a packet of type " + std::to_string(type) + ", header " + Hex(header) +
                   ", at " + Hex(address));
  }
  const uint8_t opcode = header >> 8 & 0xff;
  const uint32_t count = header >> 16 & 0x3fff;
  if (opcode == pm4::kNop && count == pm4::kHeaderOnlyCount) return std::nullopt;
  const std::optional<pm4::PacketFacts> facts = pm4::FindPacket(opcode);
  if (!facts.has_value()) {
    const char* name = pm4::PacketName(opcode);
    return Unknown("the packet " + (name != nullptr ? std::string(name) : Hex(opcode)) + " at " +
                   Hex(address));
  }
  const uint32_t words = count + 1, left = buffer.count - buffer.at;
  if (words < facts->min_words || words > left) {
    return Failure{.what = std::string("a truncated ") + facts->name + ": it has " +
                           std::to_string(words) + " words, " + std::to_string(left) +
                           " are left in the buffer, " + std::to_string(facts->min_words) +
                           " are needed",
                   .address = address};
  }
  const Words body(buffer.words + buffer.at, words);
  buffer.at += words;
  if (options_.trace_packets) {
    std::fprintf(stderr, "gpu emulator:   %" PRIx64 " %s", address, facts->name);
    for (uint32_t i = 0; i < words && i < 8; ++i) std::fprintf(stderr, " %08x", body[i]);
    std::fprintf(stderr, words > 8 ? " ...\n" : "\n");
  }
  if ((header & 1) != 0 && skip_predicated_) return std::nullopt;
  return Packet(opcode, body);
}

CommandProcessor::Result CommandProcessor::Packet(uint8_t opcode, Words body) {
  switch (opcode) {
    case pm4::kNop:
    case pm4::kPfpSyncMe:
    case pm4::kAcquireMem:
      return std::nullopt;
    // State of graphics.
    case pm4::kClearState:
    case pm4::kContextControl:
    case pm4::kSetConfigReg:
    case pm4::kSetContextReg:
    case pm4::kSetContextRegPairsPacked:
    case pm4::kSetUconfigReg:
    case pm4::kSetUconfigRegIndex:
      return std::nullopt;
    case pm4::kSetShReg:
    case pm4::kSetShRegIndex:
    case pm4::kSetShRegPairs:
    case pm4::kSetShRegPairsPacked:
    case pm4::kSetShRegPairsPackedN:
      return SetShRegisters(body, opcode);
    case pm4::kLoadShRegIndex:
      return LoadShRegisters(body);
    case pm4::kSetBase:
      if ((body[0] & 0xf) == 1) indirect_base_ = pm4::Wide(body[1], body[2]);
      return std::nullopt;
    case pm4::kSetPredication:
      return SetPredication(body);
    case pm4::kEventWrite:
      return Event(body);
    case pm4::kIndirectBuffer:
      return IndirectBuffer(body);
    case pm4::kCondExec:
      return CondExec(body);
    case pm4::kDispatchDirect:
      return RunDispatch({body[0], body[1], body[2]}, body[3]);
    case pm4::kDispatchIndirect:
      return DispatchIndirect(body);
    case pm4::kWriteData:
      return WriteData(body);
    case pm4::kCopyData:
      return CopyData(body);
    case pm4::kDmaData:
      return DmaData(body);
    case pm4::kReleaseMem:
      return ReleaseMem(body);
    case pm4::kWaitRegMem:
      return WaitRegMem(body);
    default:
      return Unknown("the packet " + Hex(opcode));
  }
}

CommandProcessor::Result CommandProcessor::IndirectBuffer(Words body) {
  // A chained buffer takes the place of this one; another returns here.
  return Enter(pm4::Wide(body[0], body[1]), body[2] & kSizeMask, (body[2] & kChain) != 0);
}

CommandProcessor::Result CommandProcessor::CondExec(Words body) {
  Result failure;
  const std::byte* condition = Find(pm4::Wide(body[0], body[1]), 4, "COND_EXEC", failure);
  if (condition == nullptr) return failure;
  uint32_t value;
  std::memcpy(&value, condition, 4);
  Buffer& buffer = buffers_.back();
  const uint32_t words = body[3] & 0x3fff;
  if (words > buffer.count - buffer.at) {
    return Failure{.what = "COND_EXEC reaches beyond its buffer",
                   .address = buffer.address + uint64_t{buffer.at} * 4};
  }
  if (value == 0) buffer.at += words;
  return std::nullopt;
}

CommandProcessor::Result CommandProcessor::SetShRegisters(Words body, uint8_t opcode) {
  bool known = true;
  const auto set = [&](uint32_t index, uint32_t value) {
    known = compute_.Set(index, value) && known;
  };
  if (opcode == pm4::kSetShReg || opcode == pm4::kSetShRegIndex) {
    for (uint32_t i = 1; i < body.size(); ++i) set((body[0] & 0xffff) + i - 1, body[i]);
  } else if (opcode == pm4::kSetShRegPairs) {
    for (uint32_t i = 0; i + 1 < body.size(); i += 2) set(body[i] & 0xffff, body[i + 1]);
  } else {
    // A count, then two registers' numbers in a word before their values.
    for (uint32_t i = 1; i + 2 < body.size(); i += 3) {
      set(body[i] & 0xffff, body[i + 1]);
      set(body[i] >> 16, body[i + 2]);
    }
  }
  if (!known) return Unknown("a shader register beyond the last, set from " + Hex(body[0]));
  return std::nullopt;
}

CommandProcessor::Result CommandProcessor::LoadShRegisters(Words body) {
  const uint32_t count = body[3] & 0x3fff, first = body[2] & 0xffff;
  Result failure;
  const std::byte* values = Find(pm4::Wide(body[0] & ~uint32_t{3}, body[1]), uint64_t{count} * 4,
                                 "LOAD_SH_REG_INDEX", failure);
  if (values == nullptr) return failure;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t value;
    std::memcpy(&value, values + i * 4, 4);
    if (!compute_.Set(first + i, value)) {
      return Unknown("a shader register beyond the last, loaded from " + Hex(first));
    }
  }
  return std::nullopt;
}

CommandProcessor::Result CommandProcessor::Event(Words body) {
  switch (body[0] & 0x3f) {
    case pm4::kCsPartialFlush:
    case pm4::kVsPartialFlush:
    case pm4::kPsPartialFlush:
    case pm4::kPipelineStatStart:
    case pm4::kPipelineStatStop:
    case pm4::kVgtFlush:
    case pm4::kSqNonEvent:
    case pm4::kFlushAndInvDbMeta:
    case pm4::kFlushAndInvCbMeta:
    case pm4::kPixelPipeStatControl:  // of occlusion queries
      return std::nullopt;
    default:
      return Unknown("EVENT_WRITE of event " + std::to_string(body[0] & 0x3f));
  }
}

CommandProcessor::Result CommandProcessor::SetPredication(Words body) {
  constexpr uint32_t kClear = 0, kBool64 = 3, kBool32 = 4;
  const uint32_t operation = body[0] >> 16 & 7;
  if (operation == kClear) {
    skip_predicated_ = false;
    return std::nullopt;
  }
  if (operation != kBool64 && operation != kBool32) {
    return Unknown("SET_PREDICATION of operation " + std::to_string(operation));
  }
  const uint32_t bytes = operation == kBool64 ? 8 : 4;
  Result failure;
  const std::byte* condition = Find(pm4::Wide(body[1], body[2]), bytes, "SET_PREDICATION", failure);
  if (condition == nullptr) return failure;
  uint64_t value = 0;
  std::memcpy(&value, condition, bytes);
  const bool run_if_set = (body[0] >> 8 & 1) != 0;
  skip_predicated_ = (value != 0) != run_if_set;
  return std::nullopt;
}

CommandProcessor::Result CommandProcessor::DispatchIndirect(Words body) {
  // Compute rings give an address, the graphics ring an offset from SET_BASE's.
  const bool has_address = body.size() >= 3;
  const uint64_t address =
      has_address ? pm4::Wide(body[0], body[1]) : indirect_base_ + uint64_t{body[0]};
  Result failure;
  const std::byte* bytes = Find(address, 12, "DISPATCH_INDIRECT", failure);
  if (bytes == nullptr) return failure;
  Size3 dimensions;
  std::memcpy(dimensions.data(), bytes, 12);
  return RunDispatch(dimensions, body[has_address ? 2 : 1]);
}

CommandProcessor::Result CommandProcessor::RunDispatch(const Size3& dimensions,
                                                       uint32_t initiator) {
  for (const Dispatch& part : compute_.Dispatches(options_.chip.gfx, dimensions, initiator)) {
    if (Result failure = execute_(part)) return failure;
  }
  return std::nullopt;
}

}  // namespace tandem::rdna

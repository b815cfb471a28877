#include "services/npu_worker/emulator/array/recorded_design.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/npu_worker/emulator/array/recorded_core.h"

namespace tandem::npu::emulator {
namespace {

using Json = nlohmann::json;
constexpr size_t kStreamWords = 16;  // between two channels
constexpr size_t kWord = sizeof(uint32_t);

using Place = std::pair<uint32_t, uint32_t>;  // column, row

Place PlaceOf(const Json& item) { return {item.at("column"), item.at("row")}; }

// A stream from one channel to others: each gets every word.
struct Wire {
  std::vector<std::deque<uint32_t>> ends;

  bool HasRoom() const {
    return std::ranges::all_of(ends, [](const auto& end) { return end.size() < kStreamWords; });
  }
  void Put(uint32_t word) {
    for (auto& end : ends) end.push_back(word);
  }
};
struct WireEnd {
  Wire* wire = nullptr;
  size_t index = 0;
  std::deque<uint32_t>& words() const { return wire->ends[index]; }
};

struct RecordedTile {
  std::vector<std::byte> memory;
  LockCounts locks = LockCounts(64, 0);
  LockCounts first_counts;
};

struct RecordedDescriptor {
  uint32_t takes = 0, gives = 0;
  std::vector<uint32_t> addresses;  // of each word, in order
};

// A DMA channel of a memory tile or a core's tile.
struct RecordedChannel {
  std::string name;
  Place place;
  RecordedTile* tile = nullptr;
  bool from_stream = false;
  std::vector<RecordedDescriptor> descriptors;
  Wire* output = nullptr;
  WireEnd input;
  size_t current = 0;
  size_t position = 0;  // in the current descriptor
  bool holds = false;   // the current descriptor's lock

  bool Advance() {
    bool moved = false;
    while (Step()) moved = true;
    return moved;
  }

 private:
  bool Step() {
    const RecordedDescriptor& descriptor = descriptors[current];
    if (!holds) {
      uint32_t& count = tile->locks[descriptor.takes];
      if (count == 0) return false;
      --count;
      holds = true;
    }
    const size_t before = position;
    while (position < descriptor.addresses.size() && Move(descriptor.addresses[position]))
      ++position;
    if (position < descriptor.addresses.size()) return position > before;
    ++tile->locks[descriptor.gives];
    current = (current + 1) % descriptors.size();
    position = 0;
    holds = false;
    return true;
  }

  bool Move(uint32_t address) {
    std::byte* const at = tile->memory.data() + address;
    if (from_stream) {
      if (input.words().empty()) return false;
      std::memcpy(at, &input.words().front(), kWord);
      input.words().pop_front();
      return true;
    }
    if (!output->HasRoom()) return false;
    uint32_t word = 0;
    std::memcpy(&word, at, kWord);
    output->Put(word);
    return true;
  }
};

// The words of a descriptor that reads or writes `count` elements at `address`.
std::vector<uint32_t> WordAddresses(uint32_t address, uint32_t element_bytes, uint32_t count,
                                    const Json& dimensions) {
  std::vector<uint32_t> elements;
  if (dimensions.empty()) {
    for (uint32_t i = 0; i < count; ++i) elements.push_back(i);
  } else {
    elements.push_back(0);
    for (const Json& dimension : dimensions) {
      std::vector<uint32_t> inner;
      for (const uint32_t base : elements) {
        for (uint32_t i = 0; i < dimension.at(0).get<uint32_t>(); ++i) {
          inner.push_back(base + i * dimension.at(1).get<uint32_t>());
        }
      }
      elements = std::move(inner);
    }
  }
  std::vector<uint32_t> words;
  const auto of_word = static_cast<uint32_t>(kWord / element_bytes);
  for (size_t i = 0; i < elements.size(); i += of_word) {
    words.push_back(address + elements[i] * element_bytes);
  }
  return words;
}

class RecordedDesign final : public Design {
 public:
  // REQUIRES a description that CheckDescription accepts.
  RecordedDesign(const Json& description, const ArrayShape& shape, Fabric& fabric)
      : fabric_(fabric) {
    AddTiles(description);
    AddChannels(description.at("channels"));
    for (const Json& flow : description.at("flows")) AddFlow(flow);
    for (const Json& core : description.at("cores")) AddCore(core, shape);
  }

  bool Advance() override {
    bool moved = false;
    for (auto& [place, channel] : shim_outputs_) moved |= FromMemory(place, channel);
    for (auto& channel : channels_) moved |= channel->Advance();
    for (auto& [column, end] : shim_inputs_) moved |= ToMemory(column, end);
    for (const auto& [place, core] : cores_) moved |= AdvanceCore(place, *core);
    return moved;
  }

  std::string Waiting() const override {
    for (const auto& [place, core] : cores_) {
      if (core->awaited_lock() == kParameterLock) continue;
      return absl::StrFormat("core (%d, %d) waits for lock %d", place.first, place.second,
                             core->awaited_lock());
    }
    for (const auto& channel : channels_) {
      if (channel->position > 0) return channel->name + " has moved a part of an object";
    }
    std::map<Place, LockCounts> left;
    for (const auto& [place, tile] : tiles_) left[place] = tile.locks;
    // An input has taken room for its next object.
    for (const auto& channel : channels_) {
      if (channel->holds) ++left[channel->place][channel->descriptors[channel->current].takes];
    }
    for (const auto& [place, tile] : tiles_) {
      if (left[place] == tile.first_counts) continue;
      return absl::StrFormat("objects are left in tile (%d, %d)", place.first, place.second);
    }
    for (const auto& wire : wires_) {
      if (!std::ranges::all_of(wire->ends, &std::deque<uint32_t>::empty)) {
        return "words are left in a stream";
      }
    }
    return "";
  }

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t>;  // column, row, channel

  static Key KeyOf(const Json& end) { return {end.at("column"), end.at("row"), end.at("channel")}; }

  void AddTiles(const Json& description) {
    for (const Json& buffer : description.at("buffers")) {
      RecordedTile& tile = tiles_[PlaceOf(buffer)];
      const uint32_t end =
          buffer.at("address").get<uint32_t>() +
          buffer.at("count").get<uint32_t>() * buffer.at("element_bytes").get<uint32_t>();
      // Vectors of cores are loaded and stored at multiples of their size.
      tile.memory.resize(std::max<size_t>(tile.memory.size(), end + kAlignment));
      buffers_[buffer.at("name")] = buffer;
    }
    for (auto& [place, tile] : tiles_) {
      void* start = tile.memory.data();
      size_t room = tile.memory.size();
      TANDEM_CHECK(std::align(kAlignment, 1, start, room) != nullptr);
      shifts_[place] = static_cast<uint32_t>(static_cast<std::byte*>(start) - tile.memory.data());
    }
    for (const Json& lock : description.at("locks")) {
      tiles_[PlaceOf(lock)].locks[lock.at("number").get<size_t>()] = lock.at("initial");
    }
    for (auto& [place, tile] : tiles_) tile.first_counts = tile.locks;
  }

  uint32_t AddressOf(const Json& buffer) const {
    return buffer.at("address").get<uint32_t>() + shifts_.at(PlaceOf(buffer));
  }

  void AddChannels(const Json& channels) {
    for (const Json& entry : channels) {
      auto channel = std::make_unique<RecordedChannel>();
      channel->place = PlaceOf(entry);
      channel->tile = &tiles_.at(channel->place);
      channel->from_stream = entry.at("direction") == "from_stream";
      channel->name = absl::StrFormat("channel %d of tile (%d, %d)", entry.at("channel").get<int>(),
                                      entry.at("column").get<int>(), entry.at("row").get<int>());
      for (const Json& descriptor : entry.at("descriptors")) {
        const Json& buffer = buffers_.at(descriptor.at("buffer"));
        channel->descriptors.push_back(
            {.takes = descriptor.at("takes"),
             .gives = descriptor.at("gives"),
             .addresses = WordAddresses(AddressOf(buffer), buffer.at("element_bytes"),
                                        buffer.at("count"), descriptor.at("dimensions"))});
      }
      (channel->from_stream ? inputs_ : outputs_)[KeyOf(entry)] = channel.get();
      channels_.push_back(std::move(channel));
    }
  }

  void AddFlow(const Json& flow) {
    Wire*& wire = wire_of_[KeyOf(flow.at("from"))];
    if (wire == nullptr) {
      wires_.push_back(std::make_unique<Wire>());
      wire = wires_.back().get();
      const Key from = KeyOf(flow.at("from"));
      if (std::get<1>(from) == 0) {
        shim_outputs_[{std::get<0>(from), std::get<2>(from)}] = wire;
      } else {
        outputs_.at(from)->output = wire;
      }
    }
    const WireEnd end = {wire, wire->ends.size()};
    wire->ends.emplace_back();
    const Key to = KeyOf(flow.at("to"));
    if (std::get<1>(to) == 0) {
      shim_inputs_[{std::get<0>(to), std::get<2>(to)}] = end;
    } else {
      inputs_.at(to)->input = end;
    }
  }

  void AddCore(const Json& entry, const ArrayShape& shape) {
    RecordedTile& tile = tiles_.at(PlaceOf(entry));
    std::vector<void*> arguments;
    for (const Json& name : entry.at("arguments")) {
      arguments.push_back(tile.memory.data() + AddressOf(buffers_.at(name)));
    }
    const CoreProgram program =
        FindCoreProgram(entry.at("program").get<std::string>(), shape.generation);
    TANDEM_CHECK(program != nullptr);
    cores_[PlaceOf(entry)] = std::make_unique<RecordedCore>(program, tile.locks, arguments);
  }

  bool FromMemory(const std::pair<uint32_t, uint32_t>& place, Wire* wire) {
    ShimDma& shim = fabric_.shims[place.first];
    bool moved = false;
    while (wire->HasRoom() && shim.Remaining(DmaDirection::kToTile, place.second) > 0) {
      uint32_t word = 0;
      shim.Read(place.second, {&word, 1});
      wire->Put(word);
      moved = true;
    }
    return moved;
  }
  bool ToMemory(const std::pair<uint32_t, uint32_t>& place, const WireEnd& end) {
    ShimDma& shim = fabric_.shims[place.first];
    bool moved = false;
    while (!end.words().empty() && shim.Remaining(DmaDirection::kFromTile, place.second) > 0) {
      shim.Write(place.second, {&end.words().front(), 1});
      end.words().pop_front();
      moved = true;
    }
    return moved;
  }

  // Control code's parameters reach a core's memory when the core takes their lock.
  bool AdvanceCore(const Place& place, RecordedCore& core) {
    ParameterBox& box = fabric_.parameters[place.first][place.second - kFirstCoreRow];
    RecordedTile& tile = tiles_.at(place);
    if (box.is_full && core.awaited_lock() == kParameterLock) {
      std::memcpy(tile.memory.data() + kParameterAddress + shifts_.at(place), box.words.data(),
                  sizeof(box.words));
      tile.locks[kParameterLock] = 1;
      box.is_full = false;
    }
    return core.Advance();
  }

  static constexpr size_t kAlignment = 64;

  Fabric& fabric_;
  std::map<Place, RecordedTile> tiles_;
  std::map<Place, uint32_t> shifts_;  // of a tile's memory, to an aligned address
  std::map<std::string, Json> buffers_;
  std::vector<std::unique_ptr<RecordedChannel>> channels_;
  std::map<Key, RecordedChannel*> inputs_, outputs_;
  std::vector<std::unique_ptr<Wire>> wires_;
  std::map<Key, Wire*> wire_of_;
  std::map<std::pair<uint32_t, uint32_t>, Wire*> shim_outputs_;   // by column and channel
  std::map<std::pair<uint32_t, uint32_t>, WireEnd> shim_inputs_;  // by column and channel
  std::map<Place, std::unique_ptr<RecordedCore>> cores_;
};

// Fails where a description cannot be of an array of this shape.
absl::Status CheckDescription(const Json& description, const ArrayShape& shape) {
  if (description.value("columns", 0u) != shape.num_columns) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d columns, must be %d", description.value("columns", 0u), shape.num_columns));
  }
  for (const Json& core : description.at("cores")) {
    const std::string program = core.at("program");
    if (FindCoreProgram(program, shape.generation) == nullptr) {
      return absl::InvalidArgumentError("no program " + program);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EmulatedArray::DesignFactory> ReadRecordedDesign(const std::string& path,
                                                                const ArrayShape& shape) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto description = std::make_shared<const Json>(Json::parse(text.str(), nullptr, false));
  if (description->is_discarded()) {
    return absl::InvalidArgumentError(path + ": not a design");
  }
  if (absl::Status status = CheckDescription(*description, shape); !status.ok()) {
    return absl::InvalidArgumentError(path + ": " + std::string(status.message()));
  }
  return [description, shape](Fabric& fabric) -> std::unique_ptr<Design> {
    return std::make_unique<RecordedDesign>(*description, shape, fabric);
  };
}

}  // namespace tandem::npu::emulator

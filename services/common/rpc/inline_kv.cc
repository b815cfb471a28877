#include "services/common/rpc/inline_kv.h"

#include <cstring>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

// Calls `part(offset)` for each part of the copy that is of one of the layers.
template <typename F>
void ForEachOwnPart(const KvCopyLayout& layout, const KvCopy& copy, const std::vector<bool>& layers,
                    F part) {
  layout.ForEachPart(copy, [&](uint32_t layer_idx, uint32_t /*block*/, uint64_t offset) {
    if (layers[layer_idx]) part(offset);
  });
}

uint64_t OwnBytes(const KvCopyLayout& layout, const KvCopy& copy, const std::vector<bool>& layers) {
  uint64_t bytes = 0;
  ForEachOwnPart(layout, copy, layers, [&](uint64_t /*offset*/) { bytes += layout.part_bytes(); });
  return bytes;
}

}  // namespace

void FillProto(const KvCopy& copy, worker::v1::KvCopy& proto) {
  proto.set_write(copy.write);
  const auto fill = [](std::span<const uint32_t> from, auto& to) {
    to.Assign(from.begin(), from.end());
  };
  fill(copy.blocks[kGlobalGroup], *proto.mutable_global_blocks());
  fill(copy.blocks[kWindowGroup], *proto.mutable_window_blocks());
}

KvCopy FromProto(const worker::v1::KvCopy& proto) {
  const auto blocks = [](const auto& ids) {
    return std::span<const uint32_t>(ids.data(), static_cast<size_t>(ids.size()));
  };
  return {.write = proto.write(),
          .blocks = {blocks(proto.global_blocks()), blocks(proto.window_blocks())}};
}

std::vector<bool> AttendedLayers(std::span<const Segment> segments, uint32_t num_layers) {
  std::vector<bool> layers(num_layers);
  for (const Segment& segment : segments) {
    for (uint32_t ordinal = segment.first_ordinal; ordinal <= segment.last_ordinal; ++ordinal) {
      const Stage stage = StageAt(ordinal, num_layers);
      if (stage.kind == StageKind::kAttend) layers[stage.layer_idx] = true;
    }
  }
  return layers;
}

void PutKv(const Exchange& exchange, const KvCopyLayout& layout, const KvCopy& copy,
           const std::vector<bool>& layers, std::string& bytes) {
  const std::span<const std::byte> area = exchange.Area(0, exchange.layout.kv);
  bytes.resize(OwnBytes(layout, copy, layers));
  char* to = bytes.data();
  ForEachOwnPart(layout, copy, layers, [&](uint64_t offset) {
    std::memcpy(to, area.data() + offset, layout.part_bytes());
    to += layout.part_bytes();
  });
}

absl::Status TakeKv(const std::string& bytes, const KvCopyLayout& layout, const KvCopy& copy,
                    const std::vector<bool>& layers, const Exchange& exchange) {
  const uint64_t due = OwnBytes(layout, copy, layers);
  if (bytes.size() != due) {
    return absl::InvalidArgumentError(
        absl::StrFormat("KV of %d bytes, %d are due", bytes.size(), due));
  }
  const std::span<std::byte> area = exchange.Area(0, exchange.layout.kv);
  const char* from = bytes.data();
  ForEachOwnPart(layout, copy, layers, [&](uint64_t offset) {
    std::memcpy(area.data() + offset, from, layout.part_bytes());
    from += layout.part_bytes();
  });
  return absl::OkStatus();
}

}  // namespace tandem

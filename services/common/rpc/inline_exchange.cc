#include "services/common/rpc/inline_exchange.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

using Bytes = std::string;
using Ports = google::protobuf::RepeatedPtrField<Bytes>;

void Copy(std::span<const std::byte> from, Bytes& to) {
  to.assign(reinterpret_cast<const char*>(from.data()), from.size());
}

void Copy(const Bytes& from, std::span<std::byte> to) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

// What the step's rows of each port of the mask take.
template <typename F>
void ForEachPort(const Exchange& exchange, PortMask mask, F&& body) {
  for (int bit = 0; bit < kNumPorts; ++bit) {
    if ((mask & (1u << bit)) != 0) body(exchange.layout.ports[bit]);
  }
}

void PutPorts(const Exchange& exchange, uint32_t lane, PortMask mask, uint32_t num_rows,
              Ports& ports) {
  ForEachPort(exchange, mask, [&](const ExchangeArea& area) {
    Copy(exchange.Area(lane, area).first(num_rows * area.row_bytes), *ports.Add());
  });
}

// INVALID_ARGUMENT unless the ports are those of the mask, with `num_rows` rows each.
absl::Status CheckPorts(const Exchange& exchange, PortMask mask, uint32_t num_rows,
                        const Ports& ports) {
  int next = 0;
  absl::Status status;
  ForEachPort(exchange, mask, [&](const ExchangeArea& area) {
    const int port = next++;
    const uint64_t due = num_rows * area.row_bytes;
    if (!status.ok() || port >= ports.size() || ports[port].size() == due) return;
    status = absl::InvalidArgumentError(
        absl::StrFormat("port %d of %d has %d bytes, %d rows of %d are due", port, ports.size(),
                        ports[port].size(), num_rows, area.row_bytes));
  });
  if (next == ports.size()) return status;
  return absl::InvalidArgumentError(
      absl::StrFormat("%d ports, the segment has %d", ports.size(), next));
}

void TakePorts(const Ports& ports, const Exchange& exchange, uint32_t lane, PortMask mask) {
  int next = 0;
  ForEachPort(exchange, mask,
              [&](const ExchangeArea& area) { Copy(ports[next++], exchange.Area(lane, area)); });
}

// Of an OutputResult, when a step asks for `num_candidates`.
uint64_t ResultBytes(uint32_t num_candidates) {
  return offsetof(OutputResult, candidates) + num_candidates * sizeof(Candidate);
}

uint64_t LogitBytes(const Exchange& exchange, const StepHeader& header) {
  return header.want_logits * header.num_outputs * exchange.layout.logits.row_bytes;
}

uint64_t PooledBytes(const Exchange& exchange, const StepHeader& header) {
  return header.num_pooled * exchange.layout.pooled.row_bytes;
}

uint64_t MaskBytes(const Exchange& exchange, const StepHeader& header) {
  return header.num_masks * exchange.layout.masks.row_bytes;
}

bool IsVision(const Exchange& exchange) { return exchange.layout.pixels.bytes > 0; }

uint64_t PixelBytes(const Exchange& exchange, const StepHeader& header) {
  return header.num_pictures * exchange.layout.pixels.row_bytes;
}

// What Embed reads.
uint64_t GivenBytes(const Exchange& exchange, const Segment& segment, const StepHeader& header) {
  const bool given = !IsVision(exchange) && segment.first_ordinal == 0 && header.num_pictures > 0;
  return given ? header.num_rows * exchange.layout.soft_tokens.row_bytes : 0;
}

// What Vision writes.
uint64_t EncodedBytes(const Exchange& exchange, const StepHeader& header) {
  if (!IsVision(exchange)) return 0;
  const ExchangeArea& pixels = exchange.layout.pixels;
  return header.num_pictures *
         (exchange.layout.soft_tokens.bytes / (pixels.bytes / pixels.row_bytes));
}

absl::Status Wrong(const Segment& segment, const std::string& what) {
  return absl::InternalError(absl::StrFormat("answer to segment %d: %s", segment.index, what));
}

absl::Status WrongSize(const Segment& segment, const char* what, uint64_t bytes, uint64_t due) {
  return Wrong(segment, absl::StrFormat("%s of %d bytes, %d are due", what, bytes, due));
}

}  // namespace

absl::StatusOr<StepHeader> HeaderOf(const Exchange& exchange, uint32_t lane,
                                    const StepLimits& limits) {
  StepHeader header;
  const std::span<std::byte> area = exchange.Area(lane, exchange.layout.step);
  std::memcpy(&header, area.data(), sizeof(header));
  const uint32_t max_outputs =
      header.want_logits != 0 ? limits.max_logit_outputs : limits.max_outputs;
  if (header.num_rows <= limits.max_rows && header.num_outputs <= max_outputs &&
      header.num_candidates <= kMaxCandidates && header.want_logits <= 1 &&
      header.num_pooled <= limits.max_sequences && header.num_masks <= limits.max_sequences &&
      header.num_pictures <= limits.max_pictures && StepBytes(header) <= area.size()) {
    return header;
  }
  return absl::InternalError(
      absl::StrFormat("the step in lane %d has been overwritten: %d rows, %d outputs, %d bytes",
                      lane, header.num_rows, header.num_outputs, StepBytes(header)));
}

bool EndsWithHead(const Segment& segment, uint32_t num_layers) {
  return segment.last_ordinal + 1 == NumStages(num_layers);
}

uint64_t LargestInlineMessage(const Exchange& exchange, const Segment& segment, bool head) {
  const ExchangeLayout& layout = exchange.layout;
  uint64_t request = layout.step.bytes + (head ? layout.masks.bytes : 0);
  uint64_t answer = head ? layout.candidates.bytes + layout.guesses.bytes + layout.logits.bytes +
                               layout.pooled.bytes
                         : 0;
  if (IsVision(exchange)) {
    request += layout.pixels.bytes;
    answer += layout.soft_tokens.bytes;
  } else if (segment.first_ordinal == 0) {
    request += layout.soft_tokens.bytes;
  }
  ForEachPort(exchange, segment.inputs, [&](const ExchangeArea& area) { request += area.bytes; });
  ForEachPort(exchange, segment.outputs, [&](const ExchangeArea& area) { answer += area.bytes; });
  return std::max(request, answer);
}

void PutInputs(const Exchange& exchange, uint32_t lane, const Segment& segment,
               const StepHeader& header, bool with_step, bool head,
               worker::v1::InlineInputs& inputs) {
  if (with_step) {
    Copy(exchange.Area(lane, exchange.layout.step).first(StepBytes(header)),
         *inputs.mutable_step());
  }
  PutPorts(exchange, lane, segment.inputs, header.num_rows, *inputs.mutable_ports());
  Copy(
      exchange.Area(lane, exchange.layout.soft_tokens).first(GivenBytes(exchange, segment, header)),
      *inputs.mutable_soft_tokens());
  Copy(exchange.Area(lane, exchange.layout.pixels).first(PixelBytes(exchange, header)),
       *inputs.mutable_pixels());
  if (!head) return;
  Copy(exchange.Area(lane, exchange.layout.masks).first(MaskBytes(exchange, header)),
       *inputs.mutable_masks());
}

absl::Status TakeStep(const worker::v1::InlineInputs& inputs, const Exchange& exchange,
                      uint32_t lane) {
  const std::span<std::byte> area = exchange.Area(lane, exchange.layout.step);
  const uint64_t bytes = inputs.step().size();
  StepHeader header;
  if (bytes < sizeof(header) || bytes > area.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("the step has %d bytes, must be in [%d, %d]",
                                                      bytes, sizeof(header), area.size()));
  }
  std::memcpy(&header, inputs.step().data(), sizeof(header));
  if (StepBytes(header) != bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the step has %d bytes, its header says %d", bytes, StepBytes(header)));
  }
  Copy(inputs.step(), area);
  return absl::OkStatus();
}

absl::Status TakeInputs(const worker::v1::InlineInputs& inputs, const Exchange& exchange,
                        uint32_t lane, const Segment& segment, const StepHeader& header,
                        bool head) {
  absl::Status status = CheckPorts(exchange, segment.inputs, header.num_rows, inputs.ports());
  const std::tuple<const char*, uint64_t, uint64_t> parts[] = {
      {"masks", inputs.masks().size(), head ? MaskBytes(exchange, header) : 0},
      {"soft tokens", inputs.soft_tokens().size(), GivenBytes(exchange, segment, header)},
      {"pixels", inputs.pixels().size(), PixelBytes(exchange, header)}};
  for (const auto& [what, bytes, due] : parts) {
    if (!status.ok() || bytes == due) continue;
    status =
        absl::InvalidArgumentError(absl::StrFormat("%s of %d bytes, %d are due", what, bytes, due));
  }
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("segment %d: %s", segment.index, std::string(status.message())));
  }
  Copy(inputs.masks(), exchange.Area(lane, exchange.layout.masks));
  Copy(inputs.soft_tokens(), exchange.Area(lane, exchange.layout.soft_tokens));
  Copy(inputs.pixels(), exchange.Area(lane, exchange.layout.pixels));
  TakePorts(inputs.ports(), exchange, lane, segment.inputs);
  return absl::OkStatus();
}

void PutOutputs(const Exchange& exchange, uint32_t lane, const Segment& segment,
                const StepHeader& header, bool head, worker::v1::InlineOutputs& outputs) {
  PutPorts(exchange, lane, segment.outputs, header.num_rows, *outputs.mutable_ports());
  Copy(exchange.Area(lane, exchange.layout.soft_tokens).first(EncodedBytes(exchange, header)),
       *outputs.mutable_soft_tokens());
  if (!head) return;
  const ExchangeLayout& layout = exchange.layout;
  const uint64_t result_bytes = ResultBytes(header.num_candidates);
  const std::span<std::byte> results = exchange.Area(lane, layout.candidates);
  outputs.mutable_candidates()->resize(header.num_outputs * result_bytes);
  for (uint32_t o = 0; o < header.num_outputs; ++o) {
    std::memcpy(outputs.mutable_candidates()->data() + o * result_bytes,
                results.data() + o * sizeof(OutputResult), result_bytes);
  }
  Copy(exchange.Area(lane, layout.guesses).first(header.num_outputs * sizeof(uint32_t)),
       *outputs.mutable_guesses());
  Copy(exchange.Area(lane, layout.logits).first(LogitBytes(exchange, header)),
       *outputs.mutable_logits());
  Copy(exchange.Area(lane, layout.pooled).first(PooledBytes(exchange, header)),
       *outputs.mutable_pooled());
}

absl::Status TakeOutputs(const worker::v1::InlineOutputs& outputs, const Exchange& exchange,
                         uint32_t lane, const Segment& segment, const StepHeader& header,
                         bool head) {
  const absl::Status status =
      CheckPorts(exchange, segment.outputs, header.num_rows, outputs.ports());
  if (!status.ok()) return Wrong(segment, std::string(status.message()));
  const uint64_t encoded_bytes = EncodedBytes(exchange, header);
  if (outputs.soft_tokens().size() != encoded_bytes) {
    return WrongSize(segment, "soft tokens", outputs.soft_tokens().size(), encoded_bytes);
  }
  const uint64_t result_bytes = ResultBytes(header.num_candidates);
  if (head) {
    const std::tuple<const char*, uint64_t, uint64_t> parts[] = {
        {"candidates", outputs.candidates().size(), header.num_outputs * result_bytes},
        {"guesses", outputs.guesses().size(), header.num_outputs * sizeof(uint32_t)},
        {"logits", outputs.logits().size(), LogitBytes(exchange, header)},
        {"pooled sums", outputs.pooled().size(), PooledBytes(exchange, header)}};
    for (const auto& [what, bytes, due] : parts) {
      if (bytes != due) return WrongSize(segment, what, bytes, due);
    }
  }
  TakePorts(outputs.ports(), exchange, lane, segment.outputs);
  if (encoded_bytes > 0) {
    Copy(outputs.soft_tokens(), exchange.Area(lane, exchange.layout.soft_tokens));
  }
  if (!head) return absl::OkStatus();
  const std::span<std::byte> results = exchange.Area(lane, exchange.layout.candidates);
  for (uint32_t o = 0; o < header.num_outputs; ++o) {
    std::memcpy(results.data() + o * sizeof(OutputResult),
                outputs.candidates().data() + o * result_bytes, result_bytes);
  }
  Copy(outputs.guesses(), exchange.Area(lane, exchange.layout.guesses));
  Copy(outputs.logits(), exchange.Area(lane, exchange.layout.logits));
  Copy(outputs.pooled(), exchange.Area(lane, exchange.layout.pooled));
  return absl::OkStatus();
}

}  // namespace tandem

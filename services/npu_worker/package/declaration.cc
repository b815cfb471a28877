#include "services/npu_worker/package/declaration.h"

#include <array>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/control/attention.h"
#include "services/npu_worker/control/gemm.h"
#include "services/npu_worker/control/rows.h"
#include "services/npu_worker/control/shim_descriptor.h"
#include "services/npu_worker/kernels/aie/attention_tile.h"
#include "services/npu_worker/kernels/aie/gemm_ring.h"
#include "services/npu_worker/kernels/aie/row_tile.h"

namespace tandem::npu {
namespace {

using Json = nlohmann::ordered_json;

// Jobs that use every column, channel and core.
absl::StatusOr<Transaction> SampleCode(const ArrayShape& array, const CatalogueOperator& op) {
  switch (op.control) {
    case ControlKind::kGemm:
      return BuildGemm({.array = array,
                        .weight_dtype = op.weight_dtype,
                        .num_rows = 256,
                        .num_outputs = 64 * array.num_columns,
                        .num_inputs = 320,
                        .activations = {.argument = 0},
                        .weights = {.argument = 1},
                        .output = {.argument = 2}});
    case ControlKind::kAttention: {
      const CacheExtent extent = {.first_position = 0, .num_positions = 64, .first_slot = 0};
      const AttentionRun run = {.num_rows = 63, .extents = {&extent, 1}};
      return BuildAttention({.array = array,
                             .head_dim = op.head_dim,
                             .num_heads = array.num_columns,
                             .num_kv_heads = array.num_columns,
                             .cache_slots = 128,
                             .queries = {.argument = 0},
                             .keys = {.argument = 1},
                             .values = {.argument = 1, .offset = 1u << 20},
                             .output = {.argument = 2},
                             .scratch = {.argument = 3}},
                            {&run, 1});
    }
    case ControlKind::kRows: {
      RowJob job = {.array = array,
                    .function = RowFunction::kNormAdd,
                    .num_rows = MaxJobRows(array),
                    .size = 64,
                    .first = {.place = {.argument = 0}},
                    .second = {.place = {.argument = 1}},
                    .output = {.place = {.argument = 2}},
                    .weights = {.argument = 3}};
      job.first.stride = job.second.stride = job.output.stride = 64;
      return BuildRows(job);
    }
  }
  return absl::InternalError("no such control code");
}

// What a transaction does to shim tiles and cores.
class Reach {
 public:
  absl::Status Add(const DecodedTransaction& code) {
    for (const Operation& operation : code.operations) TANDEM_RETURN_IF_ERROR(Add(operation));
    return absl::OkStatus();
  }

  Json Shim(const std::vector<std::string>& argument_names) const {
    Json shim = Json::array();
    for (const auto& [channel, arguments] : arguments_) {
      const auto& [column, direction, number] = channel;
      Json names = Json::array();
      for (const uint32_t argument : arguments) names.push_back(argument_names[argument]);
      shim.push_back({{"column", column},
                      {"direction", direction == DmaDirection::kToTile ? "to_tile" : "from_tile"},
                      {"channel", number},
                      {"arguments", names},
                      {"token", awaited_.contains(channel)}});
    }
    return shim;
  }
  Json Cores() const {
    Json cores = Json::array();
    for (const auto& [column, row] : cores_) cores.push_back({{"column", column}, {"row", row}});
    return cores;
  }

 private:
  using Channel = std::tuple<uint32_t, DmaDirection, uint32_t>;

  absl::Status Add(const Operation& operation) {
    const Tile tile = TileOf(operation.address);
    switch (operation.kind) {
      case Operation::Kind::kSync:
        awaited_.insert(
            {operation.token.tile.column, operation.token.direction, operation.token.channel});
        return absl::OkStatus();
      case Operation::Kind::kPatch:
        patched_[operation.address] = operation.argument;
        return absl::OkStatus();
      case Operation::Kind::kMaskedWrite:
        return absl::OkStatus();
      case Operation::Kind::kBlockWrite:
        if (tile.row >= kFirstCoreRow) cores_.insert({tile.column, tile.row});
        if (tile.row == 0) descriptors_[operation.address] = operation.values;
        return absl::OkStatus();
      case Operation::Kind::kWrite:
        if (tile.row == 0) return StartTask(tile.column, operation);
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status StartTask(uint32_t column, const Operation& operation) {
    for (const DmaDirection direction : {DmaDirection::kFromTile, DmaDirection::kToTile}) {
      for (uint32_t channel = 0; channel < kShimChannels; ++channel) {
        if (ShimQueueAddress(column, direction, channel) != operation.address) continue;
        std::optional<uint32_t> next = operation.values[0] % kShimDescriptors;
        while (next.has_value()) {
          const uint32_t address = ShimDescriptorAddress(column, *next);
          arguments_[{column, direction, channel}].insert(patched_[address + sizeof(uint32_t)]);
          TANDEM_ASSIGN_OR_RETURN(const ShimTransfer transfer,
                                  DecodeShimTransfer(descriptors_[address]));
          next = transfer.next;
        }
        return absl::OkStatus();
      }
    }
    return absl::InternalError(absl::StrFormat("%#x is no queue", operation.address));
  }

  std::map<uint32_t, std::vector<uint32_t>> descriptors_;  // by address
  std::map<uint32_t, uint32_t> patched_;                   // argument, by address
  std::map<Channel, std::set<uint32_t>> arguments_;
  std::set<Channel> awaited_;
  std::set<std::pair<uint32_t, uint32_t>> cores_;
};

Json Program(const CatalogueDevice& device, const CatalogueOperator& op) {
  const std::string name = op.name + "_program";
  Json macros = Json::array({"TANDEM_PROGRAM=" + name});
  std::string source = "rows_program.cc";
  if (op.control == ControlKind::kAttention) {
    source = "attention_program.cc";
    macros.push_back(absl::StrFormat("TANDEM_HEAD_DIM=%d", op.head_dim));
  } else if (op.control == ControlKind::kGemm) {
    source = "gemm_program.cc";
    const int format = op.weight_dtype == DType::kQ8_0   ? 80
                       : op.weight_dtype == DType::kQ4_0 ? 40
                                                         : 16;
    macros.push_back(absl::StrFormat("TANDEM_GEMM_FORMAT=%d", format));
  }
  // The 8 x 8 x 8 product of bfloat16, which AIE2P computes by block floating point.
  if (device.array.generation == 4) macros.push_back("AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16");
  return {{"source", "services/npu_worker/kernels/aie/" + source},
          {"name", name},
          {"object", op.name + ".o"},
          {"macros", macros}};
}

Json Streams() {
  Json streams = Json::object();
  constexpr std::pair<const char*, CoreStream> kStreams[] = {{"first", CoreStream::kFirst},
                                                             {"second", CoreStream::kSecond},
                                                             {"output", CoreStream::kOutput}};
  for (const auto& [name, stream] : kStreams) {
    streams[name] = {{"free", FreeLock(stream)}, {"full", FullLock(stream)}};
  }
  return streams;
}

Json TileSizes(const CatalogueOperator& op) {
  switch (op.control) {
    case ControlKind::kAttention:
      return {{"queries", kAttentionQueries},
              {"keys", kAttentionKeys},
              {"head_dim", op.head_dim},
              {"state_bytes", sizeof(AttentionState)}};
    case ControlKind::kGemm: {
      const GemmRing& ring = op.weight_dtype == DType::kQ8_0   ? kGemmRingQ8
                             : op.weight_dtype == DType::kQ4_0 ? kGemmRingQ4
                                                               : kGemmRingBf16;
      return {{"rows", kGemmRows},
              {"outputs", kGemmOutputs},
              {"inputs", kGemmInputs},
              {"block", kGemmBlock},
              {"scale_bytes", kGemmScaleBytes},
              {"piece_bytes", ring.piece_bytes},
              {"num_pieces", ring.num_pieces},
              {"weight_pieces", ring.weight_pieces},
              {"scale_pieces", ring.scale_pieces}};
    }
    case ControlKind::kRows:
      return {
          {"object_words", kRowObjectWords}, {"max_norm", kRowMaxNorm}, {"max_head", kRowMaxHead}};
  }
  return Json::object();
}

}  // namespace

absl::StatusOr<Json> DeclareOperators(const CatalogueDevice& device) {
  Json operators = Json::array();
  for (const CatalogueOperator& op : CatalogueOperators()) {
    TANDEM_ASSIGN_OR_RETURN(const Transaction code, SampleCode(device.array, op));
    TANDEM_ASSIGN_OR_RETURN(const DecodedTransaction decoded, ReadTransaction(code.words()));
    Reach reach;
    TANDEM_RETURN_IF_ERROR(reach.Add(decoded));
    const PackageOrigin origin = {"not built", "not built", "not built", "Apache-2.0"};
    operators.push_back({{"entry", OperatorEntry(device, op, "operators.xclbin", origin)},
                         {"shim", reach.Shim(ArgumentNames(op.control))},
                         {"cores", reach.Cores()},
                         {"program", Program(device, op)},
                         {"streams", Streams()},
                         {"tile", TileSizes(op)}});
  }
  return Json{{"device", device.name},
              {"generation", device.array.generation},
              {"columns", device.array.num_columns},
              {"operators", operators}};
}

}  // namespace tandem::npu

#include "services/gpu_worker/kernels/tuning_settings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::gpu {
namespace {

// Shared memory that decode.comp takes with 256 threads, four heads of 256 and subgroups of 32.
constexpr uint32_t kWideDecodeBytes = 48 << 10;

std::vector<TuningCase> Rows(const std::vector<uint32_t>& rows) {
  std::vector<TuningCase> cases;
  for (const uint32_t r : rows) cases.push_back({TuningWork::kLayers, r});
  return cases;
}
std::vector<TuningCase> Outputs(const std::vector<uint32_t>& outputs) {
  std::vector<TuningCase> cases;
  for (const uint32_t o : outputs) cases.push_back({TuningWork::kHead, o});
  return cases;
}

class SettingList {
 public:
  explicit SettingList(const Tuning& tuning) : tuning_(tuning) {}

  void Add(std::string name, std::function<uint32_t&(Tuning&)> of, std::vector<uint32_t> values,
           std::vector<TuningCase> cases) {
    // What holds is always among the choices.
    Tuning now = tuning_;
    if (const uint32_t value = of(now); std::ranges::find(values, value) == values.end()) {
      values.push_back(value);
    }
    settings_.push_back({std::move(name), std::move(of), std::move(values), std::move(cases)});
  }
  void Add(const char* name, uint32_t Tuning::*field, std::vector<uint32_t> values,
           std::vector<TuningCase> cases) {
    Add(
        name, [field](Tuning& tuning) -> uint32_t& { return tuning.*field; }, std::move(values),
        std::move(cases));
  }
  // Of one of Tuning's parts.
  template <typename Part>
  void Add(const char* name, Part Tuning::*part, uint32_t Part::*field,
           std::vector<uint32_t> values, std::vector<TuningCase> cases) {
    Add(
        name, [part, field](Tuning& tuning) -> uint32_t& { return tuning.*part.*field; },
        std::move(values), std::move(cases));
  }
  void AddTile(size_t i, const char* name, uint32_t MatrixTile::*field,
               std::vector<uint32_t> values) {
    const uint32_t most = tuning_.matrix.tiles[i].max_rows;
    Add(
        absl::StrFormat("tile%d_%s", i, name),
        [i, field](Tuning& tuning) -> uint32_t& { return tuning.matrix.tiles[i].*field; },
        std::move(values), Rows({most == ~0u ? 512u : most}));
  }

  std::vector<TuningSetting> Take() { return std::move(settings_); }

 private:
  const Tuning& tuning_;
  std::vector<TuningSetting> settings_;
};

std::vector<uint32_t> UpTo(uint32_t most, std::vector<uint32_t> values) {
  std::erase_if(values, [most](uint32_t value) { return value > most; });
  return values;
}

// Shapes that the kernel's registers and shared memory hold: those of tests/bench/matrix_bench.
void AddTiles(const Tuning& tuning, SettingList& list) {
  for (size_t i = 0; i < tuning.matrix.tiles.size(); ++i) {
    const MatrixTile& tile = tuning.matrix.tiles[i];
    list.AddTile(i, "groups", &MatrixTile::groups,
                 {16, 32, 48, 64, 96, 132, 192, 264, 396, 528, 792});
    if (tile.rows <= 16) list.AddTile(i, "columns", &MatrixTile::columns, {16, 32, 64});
    if (tile.rows <= 32 || (tile.rows == 64 && tile.columns == 32 && tile.min_bits == 0)) {
      list.AddTile(i, "chunk", &MatrixTile::chunk, {64, 128});
    }
    if (tile.rows == 64 && tile.columns == 32) {
      list.AddTile(i, "subgroups", &MatrixTile::subgroups, {4, 8});
    }
  }
}

// Depths: a short conversation, a whole window, and one that grows long.
void AddAttention(const vulkan::DeviceInfo& info, const Tuning& tuning, SettingList& list) {
  const std::vector<TuningCase> decode = {{TuningWork::kDecode, 1, 300},
                                          {TuningWork::kDecode, 1, 1023},
                                          {TuningWork::kDecode, 1, 4000},
                                          {TuningWork::kDecode, 8, 1023}};
  const std::vector<TuningCase> prompt = {{TuningWork::kPrompt, 512, 0},
                                          {TuningWork::kPrompt, 512, 2048}};
  list.Add("decode_piece_bytes", &Tuning::decode, &DecodeTuning::piece_bytes,
           {16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10}, decode);
  const uint32_t most_threads = info.max_shared_memory_bytes >= kWideDecodeBytes ? 256 : 128;
  list.Add("decode_threads", &Tuning::decode, &DecodeTuning::threads,
           UpTo(std::min(most_threads, info.max_workgroup_invocations), {64, 128, 256}), decode);
  list.Add("decode_lane_values", &Tuning::decode, &DecodeTuning::lane_values, {16, 32, 64}, decode);
  if (tuning.decode.chunks_ahead > 0) {
    list.Add("decode_chunks_ahead", &Tuning::decode, &DecodeTuning::chunks_ahead, {2, 4, 8},
             decode);
  } else {
    list.Add("decode_at_once", &Tuning::decode, &DecodeTuning::at_once, {1, 2, 4}, decode);
  }
  if (tuning.matrix.fragments.sums_in_quads) {
    list.Add("tiled_quads", &Tuning::tiled, &TiledTuning::quads, {0, 1}, prompt);
    return;
  }
  if (tuning.matrix.fragments.sums_in_columns) {
    list.Add("tiled_rows", &Tuning::tiled, &TiledTuning::rows, {0, 1}, prompt);
    list.Add("tiled_part_dims", &Tuning::tiled, &TiledTuning::part_dims, {64, 128}, prompt);
  } else {
    list.Add("tiled_row_blocks", &Tuning::tiled, &TiledTuning::row_blocks, {1, 2}, prompt);
  }
  list.Add("tiled_ahead", &Tuning::tiled, &TiledTuning::ahead, {0, 1}, prompt);
}

}  // namespace

std::string TuningCase::Name() const {
  constexpr char kLetters[] = {'r', 'd', 'p', 'h'};  // by TuningWork
  std::string name = absl::StrFormat("%c%d", kLetters[static_cast<int>(work)], rows);
  if (work == TuningWork::kDecode || work == TuningWork::kPrompt) {
    name += absl::StrFormat("@%d", depth);
  }
  return name;
}

std::vector<TuningSetting> TuningSettings(const vulkan::DeviceInfo& info, const Tuning& tuning) {
  SettingList list(tuning);
  const bool is_cpu = info.type == VK_PHYSICAL_DEVICE_TYPE_CPU;
  const bool matrix_units = tuning.matrix.fragments.path != MatrixPath::kNone;
  const bool matvec = tuning.matvec_max_rows > 0;
  if (matvec) {
    list.Add("matvec_full_teams", &Tuning::matvec_full_teams, {112, 224, 448, 896, 1792, 3584},
             Rows({1, 4}));
    list.Add("matvec_groups", &Tuning::matvec_groups, {48, 132, 264, 528, ~0u}, Rows({1, 4}));
    list.Add("matvec_rounds", &Tuning::matvec_rounds, {1, 2, 3, 4, 6}, Rows({4}));
    list.Add("matvec_rounds_few", &Tuning::matvec_rounds_few, {1, 2, 3, 4, 6, 12}, Rows({1, 2}));
    list.Add("matvec_teams", &Tuning::matvec_teams, {2, 4, 8}, Rows({1, 4}));
    list.Add("matvec_rows", &Tuning::matvec_rows, {4, 8}, Rows({8, 16}));
    list.Add("matvec_max_rows", &Tuning::matvec_max_rows, {2, 4, 8, 16}, Rows({4, 8, 16}));
  }
  if (tuning.decode.enabled) AddAttention(info, tuning, list);
  if (matrix_units) {
    list.Add("matrix_min_rows", &Tuning::matrix, &MatrixTuning::min_rows, {2, 3, 5, 9, 17},
             Rows({2, 4, 8, 16}));
    AddTiles(tuning, list);
  }
  if (matvec && tuning.matrix.narrow) {
    list.Add("narrow_min_rows", &Tuning::matrix, &MatrixTuning::narrow_min_rows, {2, 3, 5, 9},
             Rows({2, 4, 8}));
    list.Add("narrow_max_rows", &Tuning::matrix, &MatrixTuning::narrow_max_rows, {8, 16, 32, 64},
             Rows({16, 32, 64}));
    list.Add("narrow_groups", &Tuning::matrix, &MatrixTuning::narrow_groups,
             {66, 132, 264, 528, 1056}, Rows({8, 32}));
  }
  // The plain kernel: where there is no other, or for float32 weights alone.
  if (!matvec || !matrix_units) {
    const std::vector<TuningCase> rows = Rows({matvec ? 32u : 1u, 64});
    list.Add("matmul_columns", &Tuning::matmul_columns, {2, 4}, rows);
    list.Add("matmul_rows", &Tuning::matmul_rows, {4, 8}, Rows({64}));
    if (!is_cpu) {
      list.Add(
          "matmul_subgroups", &Tuning::matmul_subgroups,
          UpTo(std::max(1u, info.max_workgroup_invocations / info.subgroup_size), {1, 2, 4, 8}),
          rows);
    }
  }
  if (tuning.wide_norm_threads > 0) {
    list.Add("wide_norm_threads", &Tuning::wide_norm_threads,
             UpTo(info.max_workgroup_invocations, {128, 256, 512, 1024}), Rows({1, 8}));
  }
  if (!is_cpu && matvec && tuning.wide_norm_threads > 0) {
    list.Add("norm_inputs", &Tuning::norm_inputs, {0, 1}, Rows({1}));
    if (tuning.norm_inputs != 0) {
      list.Add("norm_groups", &Tuning::norm_groups, {16, 32, 48, 64, 96, 132, 264}, Rows({1}));
    }
    list.Add("phase_counters", &Tuning::phase_counters, {0, 1}, Rows({1, 4}));
  }
  if (!is_cpu) {
    list.Add("reduce_threads", &Tuning::reduce_threads,
             UpTo(info.max_workgroup_invocations, {64, 128, 256}), Outputs({1, 8}));
  }
  return list.Take();
}

}  // namespace tandem::gpu

#include "tools/kernel_report/assembly.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"

namespace tandem::report {
namespace {

constexpr double kLanes = 32;

bool Starts(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [text](std::string_view prefix) { return text.starts_with(prefix); });
}

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Bytes of a lane: "_b128", "_u16", "_d16_hi_b16", "_i8".
double LaneBytes(std::string_view name) {
  const double pairs = Has(name, "2addr") || Has(name, "load_2") || Has(name, "store_2") ? 2 : 1;
  for (const auto& [width, bytes] : std::initializer_list<std::pair<std::string_view, double>>{
           {"128", 16}, {"b96", 12}, {"b64", 8}, {"b32", 4}, {"16", 2}, {"_i8", 1}, {"_u8", 1}}) {
    if (Has(name, width)) return pairs * bytes;
  }
  return pairs * (Has(name, "b8") ? 1 : 4);
}

// One operation of the vector unit.
void AddVector(std::string_view name, InstructionMix& mix) {
  if (name.starts_with("v_wmma")) {
    ++mix.matrix;
    mix.matrix_macs += 16 * 16 * 16;
  } else if (name.starts_with("v_dot4") || name.starts_with("v_dual_dot4")) {
    ++mix.dot;
    mix.dot_macs += 4 * kLanes;
  } else if (name.starts_with("v_dot2") || name.starts_with("v_dual_dot2")) {
    ++mix.dot;
    mix.dot_macs += 2 * kLanes;
  } else if (name.starts_with("v_pk_fma")) {
    mix.fma += 2;
    mix.fma_macs += 2 * kLanes;
  } else if (Starts(name, {"v_fma", "v_dual_fma", "v_mad_mix", "v_pk_mad"})) {
    ++mix.fma;
    mix.fma_macs += kLanes;
  } else if (Starts(name, {"v_exp", "v_log", "v_rcp", "v_rsq", "v_sqrt", "v_sin", "v_cos"})) {
    ++mix.transcendental;
  } else if (Starts(name, {"v_mul_lo", "v_mul_hi", "v_mad_u64", "v_mad_i64", "v_lshlrev_b64",
                           "v_lshrrev_b64", "v_ashrrev_i64"})) {
    ++mix.multiply;
  } else if (Has(name, "_u32") || Has(name, "_i32") || Has(name, "_b32") || Has(name, "_u16") ||
             Has(name, "_i16") || Has(name, "_b16") || Has(name, "_nc_")) {
    ++mix.integer;
  }
}

InstructionMix Classify(std::string_view name, std::string_view line) {
  InstructionMix mix;
  if (Starts(name, {"s_delay_alu", "s_nop", "s_clause", "s_endpgm", "s_code_end", "s_inst_prefetch",
                    "s_set_inst_prefetch", "s_sendmsg", "s_setprio"})) {
    return mix;  // not issued to a unit
  }
  mix.total = 1;
  if (name.starts_with("s_wait")) {
    mix.waits = 1;
  } else if (name.starts_with("s_barrier")) {
    mix.barriers = 1;
  } else if (Starts(name, {"s_branch", "s_cbranch"})) {
    mix.branches = 1;
  } else if (Starts(name, {"s_load", "s_buffer_load"})) {
    mix.scalar_loads = 1;
  } else if (name.starts_with("s_")) {
    mix.scalar = 1;
  } else if (name.starts_with("scratch_")) {
    mix.scratch = 1;
    mix.vector_bytes = LaneBytes(name) * kLanes;
  } else if (Starts(name, {"global_", "buffer_", "flat_", "tbuffer_", "image_"})) {
    if (Starts(name, {"buffer_gl", "global_inv", "global_wb"})) return mix;
    ++(Has(name, "store") ? mix.vector_stores : mix.vector_loads);
    mix.vector_bytes = LaneBytes(name) * kLanes;
  } else if (name.starts_with("ds_")) {
    mix.shared = 1;
    mix.shared_bytes = LaneBytes(name) * kLanes;
  } else if (name.starts_with("v_")) {
    mix.vector = 1;
    AddVector(name, mix);
    // The second of two operations.
    const size_t second = line.find("::");
    if (second != std::string_view::npos) {
      const size_t begin = line.find("v_dual", second);
      if (begin != std::string_view::npos) {
        AddVector(line.substr(begin, line.find(' ', begin) - begin), mix);
      }
    }
  }
  return mix;
}

struct Line {
  InstructionMix mix;
  int target = -1;  // of a branch: the block's number
};

double Macs(const InstructionMix& mix) {
  // Where matrices or dot products are, single multiply-adds scale and add up.
  if (mix.matrix_macs > 0) return mix.matrix_macs;
  if (mix.dot_macs > 0) return mix.dot_macs;
  return mix.fma_macs;
}

int BlockNumber(std::string_view text) {  // "BB12..."
  int number = -1;
  size_t end = 2;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  return end > 2 && absl::SimpleAtoi(std::string(text.substr(2, end - 2)), &number) ? number : -1;
}

}  // namespace

void InstructionMix::Add(const InstructionMix& other) {
  for (uint32_t InstructionMix::*count :
       {&InstructionMix::total, &InstructionMix::vector, &InstructionMix::dot,
        &InstructionMix::matrix, &InstructionMix::fma, &InstructionMix::integer,
        &InstructionMix::multiply, &InstructionMix::transcendental, &InstructionMix::scalar,
        &InstructionMix::vector_loads, &InstructionMix::vector_stores,
        &InstructionMix::scalar_loads, &InstructionMix::shared, &InstructionMix::scratch,
        &InstructionMix::waits, &InstructionMix::branches, &InstructionMix::barriers}) {
    this->*count += other.*count;
  }
  for (double InstructionMix::*amount :
       {&InstructionMix::vector_bytes, &InstructionMix::shared_bytes, &InstructionMix::dot_macs,
        &InstructionMix::matrix_macs, &InstructionMix::fma_macs}) {
    this->*amount += other.*amount;
  }
  macs = Macs(*this);
}

AssemblyReport ReadAssembly(std::string_view text) {
  AssemblyReport report;
  std::vector<Line> lines;
  std::map<int, size_t> blocks;                  // number -> its first line
  std::vector<std::pair<size_t, size_t>> loops;  // first and last line
  std::vector<std::pair<std::string_view, size_t>> unused;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) continue;
    line.remove_prefix(begin);
    if (line.starts_with("BB")) {
      blocks[BlockNumber(line)] = lines.size();
      continue;
    }
    if (const size_t comment = line.find(';'); comment != std::string_view::npos) {
      line = line.substr(0, comment);
    }
    const std::string_view name = line.substr(0, std::min(line.find(' '), line.size()));
    Line& read = lines.emplace_back(Line{.mix = Classify(name, line)});
    if (read.mix.branches > 0 && line.find("BB") != std::string_view::npos) {
      read.target = BlockNumber(line.substr(line.find("BB")));
    }
    report.all.Add(read.mix);
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto target = blocks.find(lines[i].target);
    if (lines[i].target >= 0 && target != blocks.end() && target->second <= i) {
      loops.emplace_back(target->second, i);
    }
  }
  // Several branches back to one block are one loop, up to the last.
  std::ranges::sort(
      loops, [](const auto& a, const auto& b) { return a.second - a.first < b.second - b.first; });
  for (const auto& [first, last] : loops) {
    InstructionMix mix;
    for (size_t i = first; i <= last; ++i) mix.Add(lines[i].mix);
    if (report.all.macs > 0 && mix.macs >= 0.6 * report.all.macs) {
      report.loop = mix;
      break;
    }
  }
  return report;
}

Clocks ClocksOf(const InstructionMix& mix, const InstructionCosts& costs) {
  const uint32_t special = mix.matrix + mix.dot + mix.integer + mix.multiply + mix.transcendental;
  const double plain = mix.vector > special ? mix.vector - special : 0;
  Clocks clocks;
  const double matrix = mix.matrix * costs.matrix;
  clocks.vector = plain * costs.vector + mix.dot * costs.dot + mix.integer * costs.integer +
                  mix.multiply * costs.multiply + mix.transcendental * costs.transcendental +
                  matrix;
  clocks.matrix_bound = 2 * matrix >= clocks.vector;
  clocks.shared = mix.shared_bytes / costs.lds_bytes;
  clocks.memory = mix.vector_bytes / costs.vmem_bytes;
  clocks.scalar = mix.scalar + mix.branches + mix.scalar_loads;
  return clocks;
}

double Clocks::most() const { return std::max({vector, shared, memory, scalar}); }

std::string_view Clocks::bound() const {
  if (most() == vector) return matrix_bound ? "matrix unit" : "vector unit";
  if (most() == shared) return "shared memory";
  return most() == memory ? "cache" : "scalar unit";
}

}  // namespace tandem::report

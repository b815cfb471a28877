// Placements and segments in words.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/plan/planner.h"

namespace tandem {
namespace {

std::string Shown(const WorkerDescription& worker) {
  const bool says_so = worker.device.find("emulated") != std::string::npos;
  const bool is_gpu = worker.kind == DeviceKind::kGpu;
  return absl::StrFormat("%s (%s%s%s%s)", worker.name,
                         worker.emulated && !says_so && !is_gpu ? "emulated " : "", worker.device,
                         worker.emulated && is_gpu ? ", software" : "",
                         worker.remote ? ", another host" : "");
}

// "Attend x12", "Head", or "Ffn(6-11)" where it is not every layer's.
std::string DescribeKind(StageKind kind, const std::vector<uint32_t>& layers, uint32_t num_layers) {
  std::string name(StageKindName(kind));
  if (!IsOfLayer(kind)) return name;
  if (layers.size() == num_layers) return absl::StrFormat("%s x%d", name, layers.size());
  if (layers.back() - layers.front() + 1 == layers.size()) {
    return absl::StrFormat("%s(%d-%d)", name, layers.front(), layers.back());
  }
  return absl::StrFormat("%s(%s)", name, absl::StrJoin(layers, ","));
}

// Whole layers are named as such: "layers 6-11".
std::vector<std::string> DescribeKinds(const std::vector<std::vector<uint32_t>>& layers,
                                       uint32_t num_layers) {
  const auto of = [&layers](StageKind kind) -> const std::vector<uint32_t>& {
    return layers[static_cast<int>(kind)];
  };
  const std::vector<uint32_t>& first = of(StageKind::kQkv);
  const bool whole = !first.empty() && first.back() - first.front() + 1 == first.size() &&
                     of(StageKind::kAttend) == first && of(StageKind::kOut) == first &&
                     of(StageKind::kFfn) == first;
  std::vector<std::string> kinds;
  for (int k = 0; k < kNumStageKinds; ++k) {
    const StageKind kind = static_cast<StageKind>(k);
    const bool of_layer = IsOfLayer(kind);
    if (layers[k].empty() || (whole && of_layer && kind != StageKind::kQkv)) continue;
    kinds.push_back(whole && of_layer ? absl::StrFormat("layers %d-%d", first.front(), first.back())
                                      : DescribeKind(kind, layers[k], num_layers));
  }
  return kinds;
}

}  // namespace

std::string DescribePlacement(const Plan& plan, const ModelConfig& config) {
  if (plan.workers.empty()) return "nothing placed";
  if (plan.workers.size() == 1) return "everything on " + Shown(plan.workers[0]);
  using LayersByKind = std::vector<std::vector<uint32_t>>;
  std::vector<LayersByKind> layers(plan.workers.size(), LayersByKind(kNumStageKinds));
  std::vector<size_t> num_stages(plan.workers.size());
  for (const Segment& segment : plan.segments) {
    for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
      const Stage stage = StageAt(s, config.num_layers);
      layers[segment.worker][static_cast<int>(stage.kind)].push_back(stage.layer_idx);
      ++num_stages[segment.worker];
    }
  }
  const size_t rest = std::max_element(num_stages.begin(), num_stages.end()) - num_stages.begin();
  std::vector<std::string> parts;
  for (size_t w = 0; w < plan.workers.size(); ++w) {
    if (w == rest) continue;
    parts.push_back(absl::StrFormat(
        "%s on %s", absl::StrJoin(DescribeKinds(layers[w], config.num_layers), " and "),
        Shown(plan.workers[w])));
  }
  parts.push_back("the rest on " + Shown(plan.workers[rest]));
  return absl::StrJoin(parts, ", ");
}

std::string DescribeSegment(const Segment& segment, uint32_t num_layers) {
  const std::string first = StageName(StageAt(segment.first_ordinal, num_layers));
  if (segment.last_ordinal - segment.first_ordinal >= 4) {
    return absl::StrFormat("%s..%s", first, StageName(StageAt(segment.last_ordinal, num_layers)));
  }
  std::string text = first;
  for (uint32_t s = segment.first_ordinal + 1; s <= segment.last_ordinal; ++s) {
    text += "+" + StageName(StageAt(s, num_layers));
  }
  return text;
}

}  // namespace tandem

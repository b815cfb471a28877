#include "services/common/plan/planner.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/plan/port_formats.h"
#include "services/common/plan/segment_cut.h"
#include "services/common/tensor/kv_format.h"

namespace tandem {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

template <typename T>
bool Contains(const std::vector<T>& values, T value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Why a worker cannot run a kind of stage of this model; nothing if it can.
std::optional<std::string> Obstacle(const WorkerDescription& worker, StageKind kind,
                                    const ModelConfig& config,
                                    const std::vector<DType>& weight_dtypes, DType kv_dtype) {
  if (!Contains(worker.stages, kind)) {
    return absl::StrFormat("%s has no %s stage", worker.name, std::string(StageKindName(kind)));
  }
  if (kind == StageKind::kAttend) {
    if (!worker.head_dims.empty() && !Contains(worker.head_dims, config.head_dim)) {
      return absl::StrFormat("%s attends with head sizes %s, the model has %d", worker.name,
                             absl::StrJoin(worker.head_dims, ", "), config.head_dim);
    }
    if (kv_dtype != DType::kF16 && !Contains(worker.kv_dtypes, kv_dtype)) {
      return absl::StrFormat("%s has no %s KV cache", worker.name,
                             std::string(Traits(kv_dtype).name));
    }
    const absl::Status heads = CheckKvHeads(kv_dtype, config.head_dim);
    if (!heads.ok()) return std::string(heads.message());
    return {};
  }
  for (const DType dtype : weight_dtypes) {
    if (Contains(worker.weight_dtypes, dtype)) continue;
    return absl::StrFormat("%s does not read %s weights", worker.name,
                           std::string(Traits(dtype).name));
  }
  return {};
}

class Planner {
 public:
  Planner(const ModelConfig& config, const std::vector<DType>& weight_dtypes,
          const std::vector<WorkerDescription>& workers, const PlacementPolicy& policy)
      : config_(config), weight_dtypes_(weight_dtypes), workers_(workers), policy_(policy) {}

  absl::StatusOr<Plan> Make() {
    TANDEM_RETURN_IF_ERROR(CheckWorkers());
    TANDEM_RETURN_IF_ERROR(ChooseAttendNpus());
    leaves_out_software_ = policy_.gpu == GpuPolicy::kPrefer && HasRealGpu();
    if (policy_.layers_on_npu) {
      TANDEM_RETURN_IF_ERROR(ChooseNpus());
    } else if (policy_.layers.empty()) {
      ChooseGpus();
    } else {
      TANDEM_RETURN_IF_ERROR(TakeRanges());
    }
    TANDEM_RETURN_IF_ERROR(AssignStages());
    TANDEM_RETURN_IF_ERROR(NoteWhereAttendRuns());
    Plan plan = Cut();
    NoteSoftware(plan);
    plan.notice = absl::StrJoin(notices_, "; ");
    return plan;
  }

  absl::StatusOr<Plan> MakeVision() {
    TANDEM_RETURN_IF_ERROR(CheckWorkers());
    leaves_out_software_ = policy_.gpu == GpuPolicy::kPrefer && HasVisionGpu();
    std::vector<std::string> reasons;
    for (const bool remote : {false, true}) {
      for (uint32_t w = 0; w < workers_.size(); ++w) {
        if (workers_[w].remote != remote) continue;
        auto why = WhyNoVision(w);
        if (!why.has_value()) return VisionOn(workers_[w]);
        reasons.push_back(*std::move(why));
      }
    }
    return absl::FailedPreconditionError(
        absl::StrFormat("Vision: no worker can run it: %s",
                        reasons.empty() ? "none is connected" : absl::StrJoin(reasons, "; ")));
  }

 private:
  std::optional<std::string> Why(uint32_t worker, StageKind kind) const {
    return Obstacle(workers_[worker], kind, config_, weight_dtypes_, policy_.kv_dtype);
  }
  bool Can(uint32_t worker, StageKind kind) const { return !Why(worker, kind).has_value(); }

  absl::Status CheckWorkers() const {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].max_rows == 0) {
        return absl::InvalidArgumentError(
            absl::StrFormat("worker %s: max_rows is 0", workers_[i].name));
      }
      for (size_t j = 0; j < i; ++j) {
        if (workers_[i].name != workers_[j].name) continue;
        return absl::InvalidArgumentError(absl::StrFormat(
            "two workers are called %s; give one another --name", workers_[i].name));
      }
    }
    return absl::OkStatus();
  }

  // Fills npus_ with the workers that attend as NPUs under the policy, or says why there is none.
  absl::Status ChooseAttendNpus() {
    if (policy_.npu == NpuPolicy::kOff) return absl::OkStatus();
    const bool want_emulated = policy_.npu == NpuPolicy::kEmulate;
    std::vector<std::string> reasons;
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      const WorkerDescription& worker = workers_[w];
      if (worker.kind != DeviceKind::kNpu) continue;
      if (worker.remote) {
        reasons.push_back(absl::StrFormat(
            "%s is on another host, and attention alone does not cross hosts", worker.name));
      } else if (worker.emulated != want_emulated) {
        reasons.push_back(
            absl::StrFormat("%s is %s (policy emulate takes emulated NPUs, and only those)",
                            worker.name, worker.emulated ? "emulated" : "a real NPU"));
      } else if (auto why = Why(w, StageKind::kAttend)) {
        reasons.push_back(*std::move(why));
      } else {
        npus_.push_back(w);
      }
    }
    if (!npus_.empty()) return absl::OkStatus();
    if (reasons.empty()) {
      reasons.push_back(policy_.why_no_npu.empty() ? "no NPU worker is connected"
                                                   : policy_.why_no_npu);
    }
    const std::string why = absl::StrJoin(reasons, "; ");
    if (NpuIsOptional(policy_.npu)) {
      notices_.push_back(absl::StrFormat("Attend runs on the GPU: %s", why));
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "Attend: policy %s wants an NPU: %s", std::string(NpuPolicyName(policy_.npu)), why));
  }

  // A GPU of this machine's or another's that owns ranges, and is no software driver.
  bool HasRealGpu() const {
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      if (!workers_[w].emulated && !WhyNoRange(w).has_value()) return true;
    }
    return false;
  }

  // What the policy has against a GPU; nothing if it takes it.
  std::optional<std::string> WhyNotTaken(uint32_t w) const {
    const WorkerDescription& worker = workers_[w];
    if (worker.emulated && policy_.gpu == GpuPolicy::kRequire) {
      return absl::StrFormat(
          "%s has no GPU: %s is software, and policy require wants a GPU (--gpu=software takes it)",
          worker.name, worker.device);
    }
    if (!worker.emulated && policy_.gpu == GpuPolicy::kSoftware) {
      return absl::StrFormat("%s is a GPU (policy software takes software drivers, and only those)",
                             worker.name);
    }
    if (worker.emulated && leaves_out_software_) {
      return absl::StrFormat("%s is software, and there is a GPU", worker.name);
    }
    return {};
  }

  // What keeps a worker from running Vision; nothing if it can.
  std::optional<std::string> WhyNoVision(uint32_t w) const {
    if (workers_[w].kind == DeviceKind::kNpu && policy_.npu == NpuPolicy::kOff) {
      return absl::StrFormat("%s is an NPU", workers_[w].name);
    }
    if (workers_[w].kind == DeviceKind::kGpu) {
      if (auto why = WhyNotTaken(w)) return why;
    }
    return Why(w, StageKind::kVision);
  }
  bool HasVisionGpu() const {
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w].kind == DeviceKind::kGpu && !workers_[w].emulated &&
          Can(w, StageKind::kVision)) {
        return true;
      }
    }
    return false;
  }
  Plan VisionOn(const WorkerDescription& worker) const {
    const uint32_t ordinal = VisionOrdinal(config_.num_layers);
    Plan plan;
    plan.workers = {worker};
    plan.segments = {{.first_ordinal = ordinal, .last_ordinal = ordinal}};
    plan.max_rows = worker.max_rows;
    return plan;
  }

  // What keeps an NPU from owning a range of layers, whole; nothing if it can.
  std::optional<std::string> WhyNoNpuRange(uint32_t w) const {
    if (std::ranges::find(npus_, w) == npus_.end()) {
      return absl::StrFormat("%s is %s NPU, which policy %s leaves out", workers_[w].name,
                             workers_[w].emulated ? "an emulated" : "an",
                             std::string(NpuPolicyName(policy_.npu)));
    }
    for (const StageKind kind :
         {StageKind::kQkv, StageKind::kAttend, StageKind::kOut, StageKind::kFfn}) {
      if (auto why = Why(w, kind)) return why;
    }
    return {};
  }

  // What keeps a GPU from owning a range of layers; nothing if it can.
  std::optional<std::string> WhyNoRange(uint32_t w) const {
    if (workers_[w].kind != DeviceKind::kGpu) {
      return absl::StrFormat("%s is an NPU", workers_[w].name);
    }
    if (auto why = WhyNotTaken(w)) return why;
    for (int k = 0; k < kNumDecoderStageKinds; ++k) {
      const StageKind kind = static_cast<StageKind>(k);
      const bool npus_part =
          kind == StageKind::kAttend && !npus_.empty() && !npus_own_layers_ && !workers_[w].remote;
      if (npus_part) continue;
      if (auto why = Why(w, kind)) return why;
    }
    return {};
  }

  // Fills owners_ with the owners of layer ranges, those that run all that is not on the NPU, and
  // ends_ with where the ranges end.
  void ChooseGpus() {
    const uint32_t wanted =
        std::min(policy_.num_gpus == 0 ? UINT32_MAX : policy_.num_gpus, config_.num_layers);
    for (uint32_t w = 0; w < workers_.size() && owners_.size() < wanted; ++w) {
      if (!WhyNoRange(w).has_value()) owners_.push_back(w);
    }
    if (policy_.num_gpus > 1 && owners_.size() < policy_.num_gpus) {
      notices_.push_back(absl::StrFormat("layers are split over %d GPUs, %d were asked for",
                                         owners_.size(), policy_.num_gpus));
    }
    ShareByMemory();
  }

  // The same with NPUs: every range is on one.
  absl::Status ChooseNpus() {
    npus_own_layers_ = true;
    std::vector<std::string> reasons;
    for (const uint32_t w : npus_) {
      if (auto why = WhyNoNpuRange(w)) {
        reasons.push_back(*std::move(why));
      } else if (owners_.size() < config_.num_layers) {
        owners_.push_back(w);
      }
    }
    if (owners_.empty()) {
      if (reasons.empty()) reasons = std::move(notices_);
      return absl::FailedPreconditionError(absl::StrFormat(
          "no NPU runs whole layers: %s",
          reasons.empty() ? "policy off leaves NPUs out" : absl::StrJoin(reasons, "; ")));
    }
    ShareByMemory();
    return absl::OkStatus();
  }

  void ShareByMemory() {
    std::vector<uint64_t> memory_bytes;
    for (const uint32_t w : owners_) memory_bytes.push_back(workers_[w].memory_bytes);
    ends_ = ShareLayers(memory_bytes, config_.num_layers);
  }

  // The same from the policy's ranges.
  absl::Status TakeRanges() {
    TANDEM_RETURN_IF_ERROR(CheckLayerRanges(policy_.layers, config_.num_layers));
    std::vector<uint32_t> named;
    for (const LayerRange& range : policy_.layers) {
      uint32_t w = 0;
      while (w < workers_.size() && workers_[w].name != range.worker) ++w;
      named.push_back(w);
      if (w < workers_.size()) npus_own_layers_ |= workers_[w].kind == DeviceKind::kNpu;
    }
    for (size_t i = 0; i < named.size(); ++i) {
      const LayerRange& range = policy_.layers[i];
      const uint32_t w = named[i];
      std::optional<std::string> why;
      if (w == workers_.size()) {
        why = absl::StrFormat("%s is not connected", range.worker);
      } else {
        why = workers_[w].kind == DeviceKind::kNpu ? WhyNoNpuRange(w) : WhyNoRange(w);
      }
      if (why.has_value()) {
        return absl::FailedPreconditionError(
            absl::StrFormat("layers %d-%d on %s: %s", range.first, range.last, range.worker, *why));
      }
      owners_.push_back(w);
      ends_.push_back(range.last + 1);
    }
    return absl::OkStatus();
  }

  // The worker whose range layer `layer_idx` is in.
  uint32_t OwnerOf(uint32_t layer_idx) const {
    if (owners_.empty()) return kNobody;
    const auto range = std::upper_bound(ends_.begin(), ends_.end(), layer_idx);
    return owners_[range - ends_.begin()];
  }
  // The GPU that runs Embed, or Head, where the layer beside it is an NPU's: the nearest with layers.
  uint32_t GpuBeside(StageKind kind) const {
    const auto is_gpu = [this](uint32_t w) { return workers_[w].kind == DeviceKind::kGpu; };
    const auto nearest = [&](auto begin, auto end) {
      const auto found = std::find_if(begin, end, is_gpu);
      return found == end ? kNobody : *found;
    };
    return kind == StageKind::kEmbed ? nearest(owners_.begin(), owners_.end())
                                     : nearest(owners_.rbegin(), owners_.rend());
  }
  // The NPU that attends in layer `layer_idx`: its owner, or they share the layers equally.
  uint32_t NpuOf(uint32_t layer_idx) const {
    if (npus_.empty()) return kNobody;
    const uint32_t owner = OwnerOf(layer_idx);
    if (npus_own_layers_) return workers_[owner].kind == DeviceKind::kNpu ? owner : kNobody;
    if (owner != kNobody && workers_[owner].remote) return kNobody;
    return npus_[uint64_t{layer_idx} * npus_.size() / config_.num_layers];
  }

  uint32_t Choose(Stage stage, uint32_t previous) const {
    const uint32_t npu = NpuOf(stage.layer_idx);
    if (stage.kind == StageKind::kAttend && npu != kNobody) return npu;
    if (stage.kind == StageKind::kOut && policy_.out_on_npu && npu != kNobody &&
        Can(npu, StageKind::kOut)) {
      return npu;
    }
    const uint32_t layer =
        stage.kind == StageKind::kHead ? config_.num_layers - 1 : stage.layer_idx;
    uint32_t owner = OwnerOf(layer);
    if (npus_own_layers_ && !IsOfLayer(stage.kind)) owner = GpuBeside(stage.kind);
    if (owner != kNobody) return owner;
    // No GPU runs everything: the fewest changes of worker, then the first that can.
    const auto eligible = [&](uint32_t w) {
      return workers_[w].kind == DeviceKind::kGpu && !workers_[w].remote &&
             !WhyNotTaken(w).has_value() && Can(w, stage.kind);
    };
    if (previous != kNobody && eligible(previous)) return previous;
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      if (eligible(w)) return w;
    }
    return kNobody;
  }

  absl::Status AssignStages() {
    const uint32_t num_stages = NumStages(config_.num_layers);
    owner_.resize(num_stages);
    uint32_t previous = kNobody;
    for (uint32_t s = 0; s < num_stages; ++s) {
      const Stage stage = StageAt(s, config_.num_layers);
      owner_[s] = Choose(stage, previous);
      if (owner_[s] == kNobody) return NobodyRuns(stage);
      if (workers_[owner_[s]].kind == DeviceKind::kGpu) previous = owner_[s];
    }
    if (policy_.out_on_npu) NoteWhereOutRuns();
    return absl::OkStatus();
  }

  absl::Status NobodyRuns(Stage stage) const {
    std::vector<std::string> reasons;
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w].kind != DeviceKind::kGpu) continue;
      auto why = WhyNotTaken(w);
      if (!why.has_value()) why = workers_[w].remote ? WhyNoRange(w) : Why(w, stage.kind);
      reasons.push_back(why.value_or(
          absl::StrFormat("%s is on another host than the NPU's layers", workers_[w].name)));
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: no worker can run it: %s", StageName(stage),
        reasons.empty() ? "no GPU worker is connected" : absl::StrJoin(reasons, "; ")));
  }

  // Where there is an NPU, but layers that it does not attend in: all of them, or some.
  absl::Status NoteWhereAttendRuns() {
    if (npus_.empty() || npus_own_layers_) return absl::OkStatus();
    std::vector<uint32_t> layers;
    for (uint32_t l = 0; l < config_.num_layers; ++l) {
      if (NpuOf(l) == kNobody) layers.push_back(l);
    }
    if (layers.empty()) return absl::OkStatus();
    if (layers.size() == config_.num_layers && !NpuIsOptional(policy_.npu)) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "Attend: policy %s wants an NPU, and every layer is on another host than %s",
          std::string(NpuPolicyName(policy_.npu)), workers_[npus_[0]].name));
    }
    notices_.push_back(absl::StrFormat(
        "Attend of %d of %d layers runs on the GPU: they are on another host than %s",
        layers.size(), config_.num_layers, workers_[npus_[0]].name));
    return absl::OkStatus();
  }

  void NoteWhereOutRuns() {
    if (npus_.empty()) {
      notices_.push_back("Out runs on the GPU: Attend does");
      return;
    }
    for (const uint32_t npu : npus_) {
      if (auto why = Why(npu, StageKind::kOut)) {
        notices_.push_back(absl::StrFormat("Out runs on the GPU: %s", *why));
      }
    }
  }

  // Under kPrefer nobody asked for software.
  void NoteSoftware(const Plan& plan) {
    if (policy_.gpu != GpuPolicy::kPrefer) return;
    for (const WorkerDescription& worker : plan.workers) {
      if (worker.kind != DeviceKind::kGpu || !worker.emulated) continue;
      notices_.push_back(absl::StrFormat(
          "%s has no GPU: %s computes on the processor, many times slower (--gpu=require fails "
          "instead, --gpu=software takes it as it is)",
          worker.name, worker.device));
    }
  }

  // Workers renumbered in order of first use.
  Plan Cut() const {
    Plan plan;
    std::vector<uint32_t> number(workers_.size(), kNobody);
    std::vector<uint32_t> owner;
    for (const uint32_t w : owner_) {
      if (number[w] == kNobody) {
        number[w] = static_cast<uint32_t>(plan.workers.size());
        plan.workers.push_back(workers_[w]);
      }
      owner.push_back(number[w]);
    }
    plan.segments = CutSegments(owner, config_.num_layers);
    plan.max_rows = UINT32_MAX;
    for (const WorkerDescription& worker : plan.workers) {
      plan.max_rows = std::min(plan.max_rows, worker.max_rows);
    }
    plan.port_dtype = ChoosePortDType(plan);
    return plan;
  }

  const ModelConfig& config_;
  const std::vector<DType>& weight_dtypes_;
  const std::vector<WorkerDescription>& workers_;
  const PlacementPolicy& policy_;
  bool leaves_out_software_ = false;
  // NPUs have layers, whole, and attend in those alone.
  bool npus_own_layers_ = false;
  std::vector<uint32_t> npus_;    // indices into workers_, as are the following
  std::vector<uint32_t> owners_;  // of layer ranges
  std::vector<uint32_t> ends_;    // of the layer ranges of owners_: one past the last layer
  std::vector<uint32_t> owner_;   // by stage ordinal
  std::vector<std::string> notices_;
};

}  // namespace

absl::StatusOr<Plan> MakePlan(const ModelConfig& config, const std::vector<DType>& weight_dtypes,
                              const std::vector<WorkerDescription>& workers,
                              const PlacementPolicy& policy) {
  TANDEM_RETURN_IF_ERROR(config.Validate());
  return Planner(config, weight_dtypes, workers, policy).Make();
}

absl::StatusOr<Plan> MakeVisionPlan(const ModelConfig& config,
                                    const std::vector<DType>& weight_dtypes,
                                    const std::vector<WorkerDescription>& workers,
                                    const PlacementPolicy& policy) {
  TANDEM_RETURN_IF_ERROR(config.Validate());
  if (!config.vision.has_value()) {
    return absl::FailedPreconditionError("Vision: the model has no vision encoder");
  }
  return Planner(config, weight_dtypes, workers, policy).MakeVision();
}

std::string Plan::why_no_pictures() const {
  for (const WorkerDescription& worker : workers) {
    if (!worker.takes_pictures) {
      return absl::StrFormat("%s does not take the rows of pictures", worker.name);
    }
  }
  return {};
}

}  // namespace tandem

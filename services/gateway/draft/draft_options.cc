#include "services/gateway/draft/draft_options.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

// Catching up with a prompt goes in steps of so many rows: a longer one would hold up the model.
constexpr uint32_t kMostRows = 128;
// A lost worker comes back to the model first; the draft asks again later.
constexpr absl::Duration kWorkerWait = absl::Seconds(5);

}  // namespace

absl::StatusOr<ExecutorOptions> DraftExecutorOptions(const ExecutorOptions& model,
                                                     const DraftModelPlace& place) {
  ExecutorOptions draft = model;
  draft.model_name = place.model_name;
  // "main" and "draft", or "main-3" and "draft-3".
  draft.plan_id =
      "draft" + model.plan_id.substr(std::min(model.plan_id.find('-'), model.plan_id.size()));
  draft.yields = true;
  draft.max_rows = std::min(model.max_rows, kMostRows);
  draft.max_sequences = std::min(model.max_sequences, draft.max_rows);
  draft.context_at_most = model.context_len;
  draft.context_len = 0;
  draft.kv_tokens = 0;
  draft.num_lanes = 1;
  draft.queue_steps = false;
  draft.worker_wait = kWorkerWait;
  draft.policy.layers.clear();
  draft.policy.num_gpus = 1;
  if (place.device == "npu") {
    if (model.policy.npu != NpuPolicy::kEmulate) draft.policy.npu = NpuPolicy::kRequire;
    return draft;
  }
  if (place.device == "emulate") {
    if (NpuIsOptional(model.policy.npu) || model.policy.npu == NpuPolicy::kRequire) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--draft-device emulate needs an emulated NPU, and --npu is %s: give --npu "
          "off or emulate",
          std::string(NpuPolicyName(model.policy.npu))));
    }
    draft.policy.npu = NpuPolicy::kEmulate;
    return draft;
  }
  draft.policy.npu = NpuPolicy::kOff;
  if (place.device != "gpu") draft.only_worker = place.device;
  return draft;
}

}  // namespace tandem::gateway

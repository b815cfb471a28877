// Engine: requests that come from other engines, and that go to them.
#include <algorithm>
#include <utility>
#include <vector>

#include "services/common/base/logging.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/placement_moved.h"

namespace tandem::gateway {

void Engine::Continue(std::unique_ptr<MovedRequest> moved) {
  const uint64_t id = moved->id;
  receiver_.Adopted(id);
  RequestRun& run = *moved->run;
  runs_.emplace(id, std::move(moved->run));
  const absl::Status status = scheduler_->Adopt(run.MakeSequenceSpec(id), moved->progress);
  if (!status.ok()) return End(id, status);
  // Otherwise they begin with its first rows.
  if (run.started()) BeginDrafting(id, run, moved->progress.answer);
}

void Engine::OfferRuns() {
  if (options_.neighbours == nullptr || runs_.empty() || IsPlacementMoved(recovery_.why())) return;
  AbandonHandOvers();
  // What the pool has ended belongs to the answers that move.
  TakeConstraintWork(false);
  if (!options_.neighbours->ready()) return;
  std::vector<uint64_t> ids;
  for (const auto& [id, run] : runs_) {
    if (!run->has_work) ids.push_back(id);
  }
  std::ranges::sort(ids);
  size_t num_moved = 0;
  for (const uint64_t id : ids) num_moved += MoveAway(id) ? 1 : 0;
  if (num_moved == 0) return;
  moved_away_.fetch_add(num_moved, std::memory_order_relaxed);
  LogInfo("requests go on elsewhere", {{"replica", options_.replica}, {"requests", num_moved}});
}

bool Engine::MoveAway(uint64_t id) {
  const auto found = runs_.find(id);
  auto moved = std::make_unique<MovedRequest>();
  moved->id = id;
  moved->hand_over = sender_.Find(id);
  const bool with_kv = moved->hand_over != nullptr;
  moved->progress = scheduler_->Take(id);
  moved->run = std::move(found->second);
  runs_.erase(found);
  if (speculator_ != nullptr) speculator_->End(id);
  const RequestSize size = admission_.Leaves(id);
  if (options_.neighbours->Take(moved)) {
    admission_.Left(size);
    if (with_kv) {
      sender_.Moved(id);
      handed_over_.fetch_add(1, std::memory_order_relaxed);
    } else {
      sender_.Forget(id, KvHandOver::End::kGivenUp);
    }
    return true;
  }
  admission_.Stays(id, size);
  sender_.Abandon(id, absl::Now());
  moved->hand_over = nullptr;
  Continue(std::move(moved));
  return false;
}

}  // namespace tandem::gateway

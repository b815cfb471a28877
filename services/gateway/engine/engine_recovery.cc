// Engine: what happens between the loss of a worker and its return.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/model_changed.h"

namespace tandem::gateway {

void Engine::Recover() {
  const absl::Time began = absl::Now();
  AbandonHandOvers();
  const Recovery::Turn turn = [this] { return TurnWhileDown(); };
  absl::Status status = recovery_.Attempt(turn);
  if (status.ok()) status = Resume();
  if (status.ok()) return;
  recovery_.Failed(status);
  if (IsModelChanged(status)) {
    LogError("model lost, running requests end",
             {{"status", status.ToString()}, {"requests", runs_.size()}});
    return admission_.Stop(absl::UnavailableError(
        "the weights that this request ran on are lost and the model's file has changed: the "
        "gateway loads the file as it is now; send the request again"));
  }
  LogError("recovery failed", {{"status", status.ToString()},
                               {"next_attempt_in", absl::FormatDuration(recovery_.pause())}});
  EndAll(absl::UnavailableError(absl::StrFormat("a worker is lost and has not come back: %s",
                                                std::string(status.message()))),
         began);
  recovery_.Pause(turn);
}

absl::Status Engine::Resume() {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint64_t> misfits,
                          scheduler_->RecomputeAll(executor_->limits()));
  PublishPlan();
  last_wait_end_ = absl::InfinitePast();
  recovery_.Succeeded();
  for (const uint64_t id : misfits) {
    const bool sees = !runs_.at(id)->request().pictures.empty();
    End(id, absl::ResourceExhaustedError(absl::StrFormat(
                "after the loss of a worker the cluster holds %d tokens a request%s, "
                "and this one has more",
                rules_.max_sequence_len,
                sees ? absl::StrFormat(" and pictures of %d rows", scheduler_->max_picture_rows())
                     : "")));
  }
  LogInfo("recovered", {{"placement", snapshot_.placement}, {"requests", runs_.size()}});
  return absl::OkStatus();
}

bool Engine::TurnWhileDown() {
  turns_.fetch_add(1, std::memory_order_relaxed);
  TakeRequests();
  Sweep(absl::Now());
  OfferRuns();
  const bool stopped = admission_.stopped();
  if (stopped) EndAll(admission_.end_reason(), absl::InfiniteFuture());
  Publish();
  return !stopped;
}

}  // namespace tandem::gateway

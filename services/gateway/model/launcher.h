// Brings a model up in the background, while the server already answers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/gateway/constraint/constraint_cache.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/model/served_model.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

using ConstraintCounts = constraint::ConstraintCache::Counts;

// Thread-safe.
class Launcher {
 public:
  // The replicas of `starts` are started on the launcher's thread, one after another,
  // until one succeeds: again soon after UNAVAILABLE and DEADLINE_EXCEEDED (something is not there
  // yet), with a longer pause and state "failed" after other errors.  The others follow while it
  // serves.  All are started again when the last has ended by ModelChangedError: the file as it is
  // now is served then.  `names`: what the model is called beside its own name.
  // `tools`, `make_pictures`: as in ServedModel::Create.
  Launcher(ReplicaStarts starts, EngineOptions options, ModelNameOptions names = {},
           std::optional<ToolFormat> tools = {}, MakePictureEncoder make_pictures = {});
  // With one replica.
  Launcher(StartExecutor start, EngineOptions options, ModelNameOptions names = {},
           std::optional<ToolFormat> tools = {}, MakePictureEncoder make_pictures = {})
      : Launcher(ReplicaStarts{{{"", std::move(start), nullptr}}}, std::move(options),
                 std::move(names), tools, std::move(make_pictures)) {}
  ~Launcher();

  // Starts.  `on_ready` is called when requests can be answered, and when they no longer can.
  void Begin(std::function<void(bool ready)> on_ready);

  // From now on the model has these replicas, one at least (Replicas::Update), and SetExtra's.
  // REQUIRES ReplicaStarts::change of the constructor.
  void SetReplicas(std::vector<ReplicaStart> starts);
  // And one more; nullopt: no more.  Also from engines' threads.  REQUIRES as SetReplicas.
  void SetExtra(std::optional<ReplicaStart> start);

  // The model; UNAVAILABLE says what it is waiting for.  Stays valid as long as this, also when
  // another has taken its place.
  absl::StatusOr<const ServedModel*> model() const;
  void FillStatus(v1::GetStatusResponse& status) const;
  // The engine's; zero while there is no engine yet.
  SchedulerCounters counters() const;
  // Of the model's cache; zero while there is no model yet.
  ConstraintCounts constraint_counts() const;
  // Of the model's encoder; nullopt where pictures are refused.
  std::optional<PictureEncoder::Counts> picture_counts() const;
  // Tells the engine's observers of a request that was refused before it reached the engine.
  void ReportRefused(Api api, const absl::Status& status) const;
  // Replicas::progress; nothing while there is no engine yet.
  std::vector<uint64_t> progress() const;

  // No more requests; waits up to `patience` for those the engine has.  Requests that wait for the
  // compilation of their constraint end with UNAVAILABLE.
  void Drain(absl::Duration patience);
  // Ends the requests that are left with UNAVAILABLE, so that their calls can end.
  void EndRequests();
  // Whether a replica is waiting for services, as the destructor would then do too.
  bool waiting_for_services() const;

 private:
  void Run();
  // Waits for the engine to end because its model was lost, and puts that model aside; false: it is
  // the end of everything.  Meanwhile replicas change.
  bool AwaitModelChange();
  absl::Status TryOnce();
  // The first of the replicas that can be loaded.
  absl::StatusOr<LoadedReplica> LoadFirst(const std::vector<ReplicaStart>& starts,
                                          const Executor::Progress& progress) const;
  void Report(bool ready);

  EngineOptions options_;
  const ModelNameOptions names_;
  const std::optional<ToolFormat> tools_;
  const MakePictureEncoder make_pictures_;
  std::function<void(bool)> on_ready_;  // set by Begin, before the thread starts

  mutable Mutex mutex_;
  // All that there shall be.
  std::vector<ReplicaStart> Wanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ReplicaStarts starts_ ABSL_GUARDED_BY(mutex_);
  std::optional<ReplicaStart> extra_ ABSL_GUARDED_BY(mutex_);
  bool replicas_changed_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool starting_ ABSL_GUARDED_BY(mutex_) = false;
  std::string state_ ABSL_GUARDED_BY(mutex_) = "starting";
  std::string detail_ ABSL_GUARDED_BY(mutex_);
  bool model_changed_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<ServedModel> model_ ABSL_GUARDED_BY(mutex_);
  // Models served before: calls may still refer to them.  Their engines have ended.
  std::vector<std::unique_ptr<ServedModel>> former_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem::gateway

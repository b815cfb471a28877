#include "tools/simulate/run/simulation.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/rpc/cluster_network.h"
#include "services/gateway/replicas/replicas.h"
#include "services/gateway/speculation/lookup_drafter.h"
#include "tools/simulate/cluster/random_source.h"
#include "tools/simulate/cluster/simulated_loader.h"
#include "tools/simulate/cluster/worker_process.h"
#include "tools/simulate/run/constraints.h"
#include "tools/simulate/threads/world.h"

namespace tandem::simulate {
namespace {

using gateway::Replicas;

// Longer than the pauses between attempts to recover, and than what a request may wait.
constexpr absl::Duration kPatience = absl::Minutes(5);
constexpr absl::Duration kTimeLimit = absl::Hours(1);

class SimulatedNetwork final : public ClusterNetwork {
 public:
  SimulatedNetwork(SimulatedLoader& loader,
                   const std::vector<std::unique_ptr<WorkerProcess>>& workers)
      : loader_(loader), workers_(workers) {}

  absl::StatusOr<std::unique_ptr<LoaderClient>> ConnectLoader(
      const std::string& /*target*/) override {
    return loader_.Connect();
  }
  std::unique_ptr<WorkerTransport> ConnectWorker(const WorkerTarget& target) override {
    const auto found = std::ranges::find_if(
        workers_, [&](const auto& worker) { return worker->setup().target == target.text; });
    TANDEM_CHECK(found != workers_.end());
    return (*found)->Connect();
  }

 private:
  SimulatedLoader& loader_;
  const std::vector<std::unique_ptr<WorkerProcess>>& workers_;
};

class Simulation {
 public:
  Simulation(const Scenario& scenario, const Note& note, Findings& findings)
      : scenario_(scenario),
        note_(note),
        findings_(findings),
        random_(scenario.seed + 1),
        loader_(random_) {}

  // In a world.
  void Run() {
    const WorkerProcess::Report report{
        .note = note_, .violation = [this](const std::string& text) { Violation(text); }};
    for (const WorkerSetup& setup : scenario_.workers) {
      workers_.push_back(std::make_unique<WorkerProcess>(setup, loader_, random_, report));
    }
    network_ = std::make_shared<SimulatedNetwork>(loader_, workers_);
    away_.resize(scenario_.replicas.size());
    worker_kills_.resize(scenario_.workers.size());
    if (Begin()) {
      Serve();
      if (!shut_down_) CheckThatItServes();
      CheckThatNothingIsLeft();
      NoteReached(Status());
    }
    replicas_.reset();
    CheckThatAllIsGiven();
    workers_.clear();
    if (loader_.num_leases() != 0) Violation("leases of ended workers are left");
  }

 private:
  void Violation(const std::string& text) {
    findings_.violations.push_back(text);
    note_("VIOLATION: " + text);
  }

  gateway::ReplicaStart StartOf(size_t replica) {
    gateway::ExecutorOptions options = scenario_.executor;
    options.network = network_;
    options.plan_id = absl::StrFormat("main-%d", ++num_plans_);
    for (const size_t w : scenario_.replicas[replica].workers) {
      options.worker_targets.push_back(scenario_.workers[w].target);
    }
    for (const size_t w : scenario_.replicas[replica].npus) {
      options.npu_targets.push_back(scenario_.workers[w].target);
    }
    gateway::ReplicaStart start{.key = absl::StrFormat("replica %d", replica),
                                .role = scenario_.replicas[replica].role};
    start.start = [options](const gateway::Executor::Progress& progress) {
      return gateway::Executor::Start(options, progress);
    };
    if (scenario_.drafts) {
      start.make_drafters = [](const gateway::Executor&, const gateway::Executor::Progress&)
          -> absl::StatusOr<std::vector<std::unique_ptr<gateway::Drafter>>> {
        std::vector<std::unique_ptr<gateway::Drafter>> drafters;
        drafters.push_back(std::make_unique<gateway::LookupDrafter>());
        return drafters;
      };
    }
    return start;
  }
  // Of all replicas that shall be there.
  std::vector<gateway::ReplicaStart> Starts() {
    std::vector<gateway::ReplicaStart> starts;
    for (size_t r = 0; r < scenario_.replicas.size(); ++r) {
      if (away_[r] == 0) starts.push_back(StartOf(r));
    }
    return starts;
  }

  // The gateway is up; false: it could not be.
  bool Begin() {
    std::vector<gateway::ReplicaStart> starts = Starts();
    auto executor = starts[0].start({});
    if (!executor.ok()) {
      Violation("the gateway does not start: " + executor.status().ToString());
      return false;
    }
    auto replicas = Replicas::Create({0, *std::move(executor)}, TheTokenizer(), scenario_.engine,
                                     gateway::ReplicaStarts{std::move(starts), /*change=*/true});
    if (!replicas.ok()) {
      Violation("the gateway does not start: " + replicas.status().ToString());
      return false;
    }
    replicas_ = *std::move(replicas);
    note_("the gateway is up");
    return true;
  }

  // Requests and troubles, until all requests have ended and all is healed.
  void Serve() {
    const absl::Time begin = absl::Now();
    std::vector<std::thread> threads;
    for (const SimulatedRequest& request : scenario_.requests) {
      threads.emplace_back([this, &request, begin] {
        absl::SleepFor(begin + request.arrival - absl::Now());
        RunClient(request, *replicas_, scenario_, note_, findings_);
        const absl::Time patience = begin + scenario_.Calm() + kPatience;
        if (absl::Now() > patience) Violation(request.request.request_id + " has starved");
      });
    }
    for (const Trouble& trouble : scenario_.troubles) {
      threads.emplace_back([this, &trouble, begin] {
        NameThread("trouble");
        absl::SleepFor(begin + trouble.at - absl::Now());
        Cause(trouble);
        absl::SleepFor(trouble.lasts);
        Heal(trouble);
      });
    }
    absl::Notification end;
    std::thread watch([&] { Watch(end); });
    for (std::thread& thread : threads) thread.join();
    end.Notify();
    watch.join();
  }

  void Cause(const Trouble& trouble) {
    switch (trouble.kind) {
      case TroubleKind::kKillLoader:
        note_("the loader is killed");
        ++loader_kills_;
        return loader_.Kill();
      case TroubleKind::kKillWorker:
        note_(scenario_.workers[trouble.subject].description.name + " is killed");
        ++worker_kills_[trouble.subject];
        return workers_[trouble.subject]->Kill();
      case TroubleKind::kWorkerTrouble:
        active_.push_back(&trouble);
        return SetTroubles(trouble.subject);
      case TroubleKind::kLeave:
        ++away_[trouble.subject];
        // One must stay.
        if (std::ranges::all_of(away_, [](uint32_t times) { return times > 0; })) return;
        note_(absl::StrFormat("replica %d shall leave", trouble.subject));
        return replicas_->Update(Starts());
      case TroubleKind::kShutDown:
        note_("the gateway drains");
        shut_down_ = true;
        return replicas_->Drain(trouble.lasts);
    }
  }
  void Heal(const Trouble& trouble) {
    switch (trouble.kind) {
      case TroubleKind::kKillLoader:
        if (--loader_kills_ > 0) return;
        note_("the loader is back");
        return loader_.Restart();
      case TroubleKind::kKillWorker:
        if (--worker_kills_[trouble.subject] > 0) return;
        note_(scenario_.workers[trouble.subject].description.name + " is back");
        return workers_[trouble.subject]->Restart();
      case TroubleKind::kWorkerTrouble:
        std::erase(active_, &trouble);
        return SetTroubles(trouble.subject);
      case TroubleKind::kLeave:
        --away_[trouble.subject];
        if (away_[trouble.subject] > 0) return;
        note_(absl::StrFormat("replica %d shall be there", trouble.subject));
        return replicas_->Update(Starts());
      case TroubleKind::kShutDown:
        note_("the gateway stops");
        return replicas_->Stop();
    }
  }

  // Counts the gateway's requests every so often.
  void Watch(const absl::Notification& end) {
    NameThread("watch");
    // A replica that comes back has a new queue while the old one drains.
    const bool stays = std::ranges::none_of(scenario_.troubles, [](const Trouble& trouble) {
      return trouble.kind == TroubleKind::kLeave;
    });
    const size_t places =
        scenario_.replicas.size() * (scenario_.engine.max_sequences + scenario_.engine.max_waiting);
    while (stays && !end.WaitForNotificationWithTimeout(absl::Milliseconds(20))) {
      const v1::GetStatusResponse status = Status();
      const uint32_t requests = status.scheduler().running() + status.scheduler().waiting();
      // Requests of a replica that has lost a worker go to another, whether it has places or not.
      uint64_t moved = 0;
      for (const v1::ReplicaStatus& replica : status.replicas()) moved += replica.moved_away();
      if (requests <= places + moved) continue;
      return Violation(absl::StrFormat("%d requests in %d places", requests, places));
    }
  }

  // What ails a worker now, together.
  void SetTroubles(size_t worker) {
    WorkerTrouble all;
    for (const Trouble* trouble : active_) {
      if (trouble->subject == worker) all.Add(trouble->worker);
    }
    workers_[worker]->SetTrouble(all);
  }

  v1::GetStatusResponse Status() const {
    v1::GetStatusResponse status;
    replicas_->FillStatus(status);
    return status;
  }

  void CheckThatItServes() {
    SimulatedRequest probe;
    probe.request.prompt = {1, 261, 262, 263};
    probe.request.max_tokens = 4;
    probe.request.ignore_eos = true;
    probe.request.sampling.temperature = 0.0f;
    const absl::Time patience = absl::Now() + kPatience;
    for (uint32_t i = 0; absl::Now() < patience; ++i) {
      probe.request.request_id = absl::StrFormat("probe%d", i);
      Findings findings;
      RunClient(probe, *replicas_, scenario_, note_, findings);
      for (const std::string& text : findings.violations) Violation(text);
      if (findings.num_answered == 1) return;
      absl::SleepFor(absl::Seconds(1));
    }
    Violation("all is healed, and no request is answered");
  }

  void CheckThatNothingIsLeft() {
    // An engine notes the end of its last step a little later.
    const absl::Time patience = absl::Now() + kPatience;
    std::string left;
    while (absl::Now() < patience) {
      left = WhatIsLeft(Status());
      if (left.empty()) return;
      absl::SleepFor(absl::Milliseconds(100));
    }
    Violation("left after all requests have ended: " + left);
  }
  static std::string WhatIsLeft(const v1::GetStatusResponse& status) {
    const v1::SchedulerStatus& scheduler = status.scheduler();
    if (scheduler.running() != 0) return absl::StrFormat("%d run", scheduler.running());
    if (scheduler.waiting() != 0) return absl::StrFormat("%d wait", scheduler.waiting());
    for (int group = 0; group < scheduler.kv_blocks_used_size(); ++group) {
      if (scheduler.kv_blocks_used(group) == 0) continue;
      return absl::StrFormat("%d KV blocks of group %d are used", scheduler.kv_blocks_used(group),
                             group);
    }
    return "";
  }

  void NoteReached(const v1::GetStatusResponse& status) {
    const v1::SchedulerStatus& scheduler = status.scheduler();
    Reached& reached = findings_.reached;
    reached = {.steps = scheduler.steps(),
               .recoveries = status.recoveries(),
               .preemptions = scheduler.preemptions(),
               .cached_tokens = scheduler.prefix_tokens_found(),
               .rejected_guesses = scheduler.wrong_guesses()};
    for (const v1::ReplicaStatus& replica : status.replicas()) {
      reached.moved += replica.moved_away();
      reached.handed_over += replica.handed_over();
    }
    for (const v1::DrafterStatus& drafter : scheduler.drafters()) {
      reached.drafted_tokens += drafter.drafted_tokens();
    }
  }

  // What an ended gateway held at the loader.
  void CheckThatAllIsGiven() {
    if (loader_.num_regions() == 0) return;
    Violation(absl::StrFormat("%d regions of the ended gateway are left", loader_.num_regions()));
  }

  const Scenario& scenario_;
  const Note& note_;
  Findings& findings_;
  RandomSource random_;
  SimulatedLoader loader_;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  std::shared_ptr<SimulatedNetwork> network_;
  std::unique_ptr<Replicas> replicas_;
  std::vector<uint32_t> away_;          // by replica: troubles that keep it away
  std::vector<const Trouble*> active_;  // of workers
  std::vector<uint32_t> worker_kills_;  // by worker: troubles that keep it dead
  uint32_t loader_kills_ = 0;
  uint64_t num_plans_ = 0;
  bool shut_down_ = false;
};

}  // namespace

Findings Simulate(const Scenario& scenario, const Note& note,
                  const std::function<void(const Findings&)>& end) {
  Findings findings;
  WorldOptions options{
      .seed = scenario.seed + 2, .switch_one_in = scenario.switch_one_in, .time_limit = kTimeLimit};
  options.on_stuck = [&](const std::string& report) {
    findings.violations.push_back("stuck: " + report);
    note("VIOLATION: stuck: " + report);
    end(findings);
  };
  simulate::Run(options, [&] { Simulation(scenario, note, findings).Run(); });
  end(findings);
  return findings;
}

}  // namespace tandem::simulate

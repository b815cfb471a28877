// A gateway's end of the simulated network.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/simulate/cluster/worker_life.h"
#include "tools/simulate/cluster/worker_process.h"

namespace tandem::simulate {

class SimulatedStream final : public ExecutionStream {
 public:
  SimulatedStream(WorkerProcess& process, std::shared_ptr<WorkerProcess::Life> life)
      : process_(process), life_(std::move(life)) {
    if (life_ == nullptr) {
      connection_->Break();
    } else {
      life_->Attach(connection_);
    }
  }
  ~SimulatedStream() override {
    connection_->Break();
    if (life_ == nullptr) return;
    life_->Post(absl::Now(), [connection = connection_](WorkerProcess::Life& life) {
      life.Release(*connection);
    });
  }

  Outcome Send(const worker::v1::ExecuteRequest& request, absl::Time /*deadline*/) override {
    if (connection_->broken()) return Outcome::kEnded;
    const WorkerTrouble trouble = process_.trouble();
    if (process_.random_.Happens(trouble.lose)) {
      process_.report_.note(absl::StrFormat("a call of step %d to %s is lost", request.step_id(),
                                            process_.setup_.description.name));
      return Outcome::kDone;
    }
    absl::Time due = absl::Now() + process_.Latency();
    if (process_.random_.Happens(trouble.late)) {
      due += process_.random_.Between(absl::ZeroDuration(), trouble.late_by);
    }
    life_->Post(connection_->ArrivesBy(due),
                [connection = connection_, request](WorkerProcess::Life& life) {
                  life.Take(connection, request);
                });
    return Outcome::kDone;
  }
  Outcome Receive(absl::Time deadline) override { return connection_->Take(deadline, response_); }
  const worker::v1::ExecuteResponse& response() const override { return response_; }

 private:
  WorkerProcess& process_;
  const std::shared_ptr<WorkerProcess::Life> life_;
  const std::shared_ptr<WorkerProcess::Connection> connection_ =
      std::make_shared<WorkerProcess::Connection>();
  worker::v1::ExecuteResponse response_;
};

class SimulatedTransport final : public WorkerTransport {
 public:
  explicit SimulatedTransport(WorkerProcess& process) : process_(process) {}

  bool Listens() const override { return process_.setup_.remote || process_.life() != nullptr; }
  absl::StatusOr<worker::v1::DescribeResponse> Describe(absl::Duration timeout) override {
    const absl::Time deadline = absl::Now() + timeout;
    while (true) {
      if (const auto life = Reach(); life != nullptr) {
        auto description = life->host().Describe();
        if (Reach() == life) return description;
      }
      if (absl::Now() >= deadline) return Gone("is not there");
      absl::SleepFor(std::min(deadline - absl::Now(), absl::Milliseconds(20)));
    }
  }
  absl::Status LoadPlan(const worker::v1::LoadPlanRequest& request, const OnLoadMessage& on_message,
                        absl::Duration timeout) override {
    const auto load = [request](WorkerProcess::Life& life) {
      return life.host().Load(request, [](double, std::string_view) {});
    };
    absl::StatusOr<worker::v1::LoadPlanReport> report =
        Call<worker::v1::LoadPlanReport>(load, timeout);
    if (!report.ok()) return report.status();
    worker::v1::LoadPlanResponse message;
    *message.mutable_report() = *std::move(report);
    on_message(std::move(message));
    return absl::OkStatus();
  }
  absl::Status UnloadPlan(const worker::v1::UnloadPlanRequest& request,
                          absl::Duration timeout) override {
    const auto unload = [request](WorkerProcess::Life& life) -> absl::StatusOr<bool> {
      const absl::Status status = life.host().Unload(request);
      if (!status.ok()) return status;
      return true;
    };
    return Call<bool>(unload, timeout).status();
  }
  absl::StatusOr<worker::v1::GetStatusResponse> GetStatus(absl::Duration /*timeout*/) override {
    const auto life = Reach();
    if (life == nullptr) return Gone("is gone");
    worker::v1::GetStatusResponse status = life->host().GetStatus();
    if (Reach() != life) return Gone("is gone");
    return status;
  }
  absl::StatusOr<worker::v1::MeasureCeilingsResponse> MeasureCeilings(
      absl::Duration /*timeout*/) override {
    return absl::UnimplementedError("not simulated");
  }
  std::string ExecutionTarget(const worker::v1::DescribeResponse& /*description*/) const override {
    return process_.setup_.target;
  }
  std::unique_ptr<ExecutionStream> Open(const std::string& /*execution_target*/) override {
    return std::make_unique<SimulatedStream>(process_, process_.life());
  }
  bool connected() const override { return process_.life() != nullptr; }

 private:
  absl::Status Gone(const char* how) const {
    return absl::UnavailableError(absl::StrFormat("worker at %s %s", process_.setup_.target, how));
  }
  // The life that a message sent now arrives at; null: none.
  std::shared_ptr<WorkerProcess::Life> Reach() {
    absl::SleepFor(process_.Latency());
    return process_.life();
  }
  // Has the device thread run a call, and waits for its result.
  template <typename Result>
  absl::StatusOr<Result> Call(std::function<absl::StatusOr<Result>(WorkerProcess::Life&)> run,
                              absl::Duration timeout) {
    const auto life = Reach();
    if (life == nullptr) return Gone("is gone");
    struct State {
      Mutex mutex;
      CondVar changed;
      bool ended ABSL_GUARDED_BY(mutex) = false;
      absl::StatusOr<Result> result ABSL_GUARDED_BY(mutex) = absl::UnavailableError("is gone");
    };
    const auto state = std::make_shared<State>();
    const auto end = [state] {
      MutexLock lock(state->mutex);
      state->ended = true;
      state->changed.SignalAll();
    };
    life->WhenKilled(end);
    life->Post(absl::Now(), [state, end, run](WorkerProcess::Life& there) {
      auto result = run(there);
      if (there.killed()) return;
      {
        MutexLock lock(state->mutex);
        if (state->ended) return;
        state->result = std::move(result);
      }
      end();
    });
    const absl::Time deadline = absl::Now() + timeout;
    absl::StatusOr<Result> result = absl::UnavailableError("too slow");
    {
      MutexLock lock(state->mutex);
      while (!state->ended && state->changed.WaitUntil(state->mutex, deadline)) {
      }
      if (state->ended) result = std::move(state->result);
    }
    absl::SleepFor(process_.Latency());
    return result;
  }

  WorkerProcess& process_;
};

std::unique_ptr<WorkerTransport> WorkerProcess::Connect() {
  return std::make_unique<SimulatedTransport>(*this);
}

}  // namespace tandem::simulate

#include "tools/simulate/cluster/worker_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "tools/simulate/cluster/worker_life.h"
#include "tools/simulate/threads/world.h"

namespace tandem::simulate {
namespace {

constexpr absl::Duration kStuckAfter = absl::Seconds(20);
constexpr absl::Duration kIdleCheck = absl::Seconds(5);

// The answer to another call than this one and those before it: of an earlier plan, or of a step or
// segment that was not called yet.
worker::v1::ExecuteResponse Stray(const worker::v1::ExecuteRequest& call, RandomSource& random) {
  worker::v1::ExecuteResponse answer;
  answer.set_epoch(call.epoch());
  answer.set_step_id(call.step_id());
  answer.set_segment_index(call.segment_index());
  switch (random.Between(0, 2)) {
    case 0:
      answer.set_epoch(call.epoch() - 1);
      break;
    case 1:
      answer.set_step_id(call.step_id() + 1);
      break;
    default:
      answer.set_segment_index(call.segment_index() + 1);
      break;
  }
  return answer;
}

}  // namespace

void WorkerTrouble::Add(const WorkerTrouble& other) {
  lose = std::max(lose, other.lose);
  repeat = std::max(repeat, other.repeat);
  stray = std::max(stray, other.stray);
  late = std::max(late, other.late);
  late_by = std::max(late_by, other.late_by);
  fail_step = std::max(fail_step, other.fail_step);
  lose_device = std::max(lose_device, other.lose_device);
  refuse_load = std::max(refuse_load, other.refuse_load);
  stall = std::max(stall, other.stall);
  slower = std::max(slower, other.slower);
}

WorkerProcess::Life::Life(WorkerProcess& process)
    : process_(process),
      source_(process.loader_.MakeWeightSource()),
      host_(std::make_unique<ToyDevice>(
                process.setup_.description,
                ToyDevice::Hooks{.run =
                                     [this](uint32_t rows, uint32_t stages) {
                                       return process_.RunSegment(*this, rows, stages);
                                     },
                                 .load = [this] { return process_.RefuseLoad(); },
                                 .violation = process.report_.violation},
                process.setup_.keeps_answers, process.setup_.wrong_guess_in),
            *source_, kStuckAfter, /*measure_ceilings=*/false, nullptr) {}

void WorkerProcess::Life::Run() {
  NameThread(process_.setup_.description.name);
  host_.SelfTest();
  while (!killed()) {
    std::optional<Message> message = Next(absl::Now() + kIdleCheck);
    if (killed()) return;
    host_.CountTurn();
    if (message.has_value()) {
      message->run(*this);
    } else {
      host_.CheckIdle();
    }
  }
}

std::optional<WorkerProcess::Life::Message> WorkerProcess::Life::Next(absl::Time deadline) {
  MutexLock lock(mutex_);
  while (!killed_) {
    const absl::Time now = absl::Now();
    if (!mailbox_.empty() && mailbox_.front().due <= now) {
      Message next = std::move(mailbox_.front());
      mailbox_.erase(mailbox_.begin());
      return next;
    }
    if (now >= deadline) return std::nullopt;
    changed_.WaitUntil(mutex_,
                       mailbox_.empty() ? deadline : std::min(deadline, mailbox_.front().due));
  }
  return std::nullopt;
}

void WorkerProcess::Life::Post(absl::Time due, std::function<void(Life&)> message) {
  MutexLock lock(mutex_);
  const auto place = std::ranges::upper_bound(mailbox_, due, {}, &Message::due);
  mailbox_.insert(place, {due, std::move(message)});
  changed_.SignalAll();
}

bool WorkerProcess::Life::Sleep(absl::Duration time) {
  MutexLock lock(mutex_);
  const absl::Time until = absl::Now() + time;
  while (!killed_ && changed_.WaitUntil(mutex_, until)) {
  }
  return !killed_;
}

void WorkerProcess::Life::Kill() {
  std::vector<std::weak_ptr<Connection>> connections;
  std::vector<std::function<void()>> calls;
  {
    MutexLock lock(mutex_);
    killed_ = true;
    mailbox_.clear();
    connections = std::move(connections_);
    calls = std::move(calls_);
    changed_.SignalAll();
  }
  for (const auto& connection : connections) {
    if (const auto there = connection.lock()) there->Break();
  }
  for (const auto& call : calls) call();
}

void WorkerProcess::Life::Attach(const std::shared_ptr<Connection>& connection) {
  {
    MutexLock lock(mutex_);
    std::erase_if(connections_, [](const auto& other) { return other.expired(); });
    if (!killed_) {
      connections_.push_back(connection);
      return;
    }
  }
  connection->Break();
}

void WorkerProcess::Life::WhenKilled(std::function<void()> call) {
  {
    MutexLock lock(mutex_);
    if (!killed_) {
      calls_.push_back(std::move(call));
      return;
    }
  }
  call();
}

void WorkerProcess::Life::Take(const std::shared_ptr<Connection>& connection,
                               const worker::v1::ExecuteRequest& request) {
  // A client has gone: of its calls, those that were read are run.
  if (connection->broken() && process_.random_.OneIn(2)) return;
  if (request.flush() || request.masks_ready()) return GoOn(*connection, request.masks_ready());
  if (process_.random_.Happens(process_.trouble().stray)) {
    process_.report_.note(process_.setup_.description.name + " answers another call");
    connection->Put(absl::Now(), Stray(request, process_.random_));
  }
  const Connection::Held taken = {.call = host_.Submit(request),
                                  .announced = request.another_follows() && !host_.runs_in_wait(),
                                  .awaits_masks = request.masks_follow()};
  Release(*connection);
  connection->held = taken;
  if (!taken.announced && !taken.awaits_masks) Release(*connection);
}

void WorkerProcess::Life::GoOn(Connection& connection, bool with_masks) {
  if (!connection.held) return;
  if (with_masks) {
    host_.MasksReady(connection.held->call);
    connection.held->awaits_masks = false;
  } else {
    connection.held->announced = false;
  }
  if (!connection.held->announced && !connection.held->awaits_masks) Release(connection);
}

void WorkerProcess::Life::Answer(Connection& connection, uint64_t call) {
  worker::v1::ExecuteResponse answer;
  host_.Wait(call, answer);
  if (killed()) return;
  RandomSource& random = process_.random_;
  const WorkerTrouble trouble = process_.trouble();
  const std::string what =
      absl::StrFormat("the answer to step %d, segment %d, from %s", answer.step_id(),
                      answer.segment_index(), process_.setup_.description.name);
  if (random.Happens(trouble.lose)) return process_.report_.note(what + " is lost");
  absl::Time due = absl::Now() + process_.Latency();
  if (random.Happens(trouble.late)) {
    due += random.Between(absl::ZeroDuration(), trouble.late_by);
    process_.report_.note(what + " is late");
  }
  const bool twice = random.Happens(trouble.repeat);
  connection.Put(due, answer);
  if (!twice) return;
  process_.report_.note(what + " comes twice");
  connection.Put(due, std::move(answer));
}

WorkerProcess::WorkerProcess(WorkerSetup setup, SimulatedLoader& loader, RandomSource& random,
                             Report report)
    : setup_(std::move(setup)), loader_(loader), random_(random), report_(std::move(report)) {
  Restart();
}

WorkerProcess::~WorkerProcess() {
  Kill();
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    threads = std::move(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void WorkerProcess::Kill() {
  std::shared_ptr<Life> life;
  {
    MutexLock lock(mutex_);
    life = std::exchange(life_, nullptr);
  }
  if (life != nullptr) life->Kill();
}

void WorkerProcess::Restart() {
  MutexLock lock(mutex_);
  if (life_ != nullptr) return;
  life_ = std::make_shared<Life>(*this);
  threads_.emplace_back([life = life_] { life->Run(); });
}

void WorkerProcess::SetTrouble(WorkerTrouble trouble) {
  MutexLock lock(mutex_);
  trouble_ = trouble;
}

std::shared_ptr<WorkerProcess::Life> WorkerProcess::life() const {
  MutexLock lock(mutex_);
  return life_;
}

absl::Duration WorkerProcess::Latency() {
  return setup_.remote ? random_.Between(absl::Microseconds(200), absl::Milliseconds(2))
                       : random_.Between(absl::Microseconds(20), absl::Microseconds(150));
}

WorkerTrouble WorkerProcess::trouble() const {
  MutexLock lock(mutex_);
  return trouble_;
}

absl::Status WorkerProcess::RunSegment(Life& life, uint32_t num_rows, uint32_t num_stages) {
  const WorkerTrouble now = trouble();
  absl::Duration time = setup_.per_segment + setup_.per_row_stage * num_rows * num_stages;
  time *= now.slower;
  if (now.stall > absl::ZeroDuration()) {
    MutexLock lock(mutex_);
    time += std::exchange(trouble_.stall, absl::ZeroDuration());
    report_.note(setup_.description.name + " stalls");
  }
  if (!life.Sleep(time)) return absl::UnavailableError("killed");
  if (random_.Happens(now.lose_device)) {
    report_.note(setup_.description.name + " loses its device");
    return absl::UnavailableError("the device is lost");
  }
  if (random_.Happens(now.fail_step)) {
    report_.note(setup_.description.name + " fails a step");
    return absl::InternalError("the step failed");
  }
  return absl::OkStatus();
}

absl::Status WorkerProcess::RefuseLoad() {
  if (!random_.Happens(trouble().refuse_load)) return absl::OkStatus();
  report_.note(setup_.description.name + " refuses a plan");
  return absl::UnavailableError("the device cannot be opened");
}

}  // namespace tandem::simulate

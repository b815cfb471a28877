#include "tools/simulate/run/scenario.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/gateway/engine/testing/toy_model.h"
#include "tools/simulate/cluster/random_source.h"
#include "tools/simulate/cluster/simulated_loader.h"
#include "tools/simulate/run/constraints.h"

namespace tandem::simulate {
namespace {

constexpr uint32_t kFirstLetter = 261;  // of the toy vocabulary
constexpr uint32_t kNumLetters = 26;
constexpr absl::Duration kRequestsWithin = absl::Seconds(2);
constexpr absl::Duration kTroublesWithin = absl::Seconds(4);

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) { scenario_.seed = seed; }

  Scenario All() {
    scenario_.switch_one_in = static_cast<uint32_t>(Pick({2, 8, 32, 1000}));
    DrawReplicas();
    DrawEngine();
    DrawRequests();
    DrawPhases();
    // One scenario in eight is without any trouble.
    if (!random_.OneIn(8)) DrawTroubles();
    return std::move(scenario_);
  }

 private:
  uint64_t Pick(std::vector<uint64_t> values) {
    return values[random_.Between(0, values.size() - 1)];
  }
  uint32_t Number(uint32_t low, uint32_t high) {
    return static_cast<uint32_t>(random_.Between(low, high));
  }

  size_t AddWorker(DeviceKind kind, bool remote, bool feeds) {
    WorkerSetup worker;
    const size_t index = scenario_.workers.size();
    const char* const name = kind == DeviceKind::kGpu ? "gpu" : "npu";
    worker.description.name = absl::StrFormat("%s%d", name, index);
    worker.description.device = "simulated";
    worker.description.kind = kind;
    worker.description.stages = {StageKind::kAttend};
    if (kind == DeviceKind::kGpu) {
      worker.description.stages = {StageKind::kEmbed, StageKind::kQkv, StageKind::kAttend,
                                   StageKind::kOut,   StageKind::kFfn, StageKind::kHead};
    }
    worker.description.weight_dtypes = {DType::kBf16};
    worker.description.max_rows = 64;
    worker.description.feeds_steps = feeds;
    worker.keeps_answers = feeds;
    // Not drawn, so that the other draws stay as they are.
    if (feeds && scenario_.seed % 2 == 0) worker.wrong_guess_in = 5;
    worker.remote = remote;
    worker.target =
        absl::StrFormat("%s%s", remote ? "tcp://" : "unix:/simulated/",
                        remote ? worker.description.name + ":1" : worker.description.name);
    worker.per_segment = random_.Between(absl::Microseconds(100), absl::Milliseconds(4));
    worker.per_row_stage = random_.Between(absl::Nanoseconds(100), absl::Microseconds(5));
    scenario_.workers.push_back(std::move(worker));
    return index;
  }

  void DrawReplicas() {
    const uint64_t num_replicas = Pick({1, 1, 1, 2, 2, 3});
    gateway::ExecutorOptions& executor = scenario_.executor;
    executor.policy.npu = NpuPolicy::kOff;
    const uint64_t shape = Pick({0, 0, 0, 1, 1, 2, 2});
    const bool remote = shape < 2 && random_.OneIn(4);
    const uint64_t num_gpus = shape == 1 ? Pick({2, 2, 3, 4}) : 1;  // that share the layers
    executor.policy.num_gpus = static_cast<uint32_t>(num_gpus);
    for (uint64_t r = 0; r < num_replicas; ++r) {
      SimulatedReplica& replica = scenario_.replicas.emplace_back();
      replica.workers.push_back(AddWorker(DeviceKind::kGpu, remote, random_.OneIn(2)));
      while (replica.workers.size() < num_gpus) {
        replica.workers.push_back(AddWorker(DeviceKind::kGpu, remote, false));
      }
      if (shape == 2) {
        replica.npus.push_back(AddWorker(DeviceKind::kNpu, false, false));
        executor.policy.npu = NpuPolicy::kPrefer;
      }
    }
    if (shape > 0 && random_.OneIn(3)) executor.policy.npu = NpuPolicy::kAuto;
    executor.loader_target = "unix:/simulated/loader";
    executor.model_name = TheModel().description.name();
    executor.plan_token = "simulated gateway";
    executor.max_rows = static_cast<uint32_t>(Pick({8, 24, 64}));
    executor.max_sequences = Number(1, 8);
    executor.block_tokens = static_cast<uint32_t>(Pick({4, 8, 16}));
    executor.kv_tokens = Pick({256, 320, 512, 2048});
    executor.queue_steps = !random_.OneIn(4);
    executor.segment_deadline = absl::Seconds(Pick({5, 30}));
    executor.worker_wait = absl::Seconds(Pick({1, 5}));
    executor.worker_grace = absl::Milliseconds(Pick({200, 1000}));
  }

  void DrawEngine() {
    gateway::EngineOptions& engine = scenario_.engine;
    engine.max_sequences = scenario_.executor.max_sequences;
    engine.max_rows = scenario_.executor.max_rows;
    engine.chunk_rows = static_cast<uint32_t>(Pick({4, 16, 64}));
    engine.max_waiting = static_cast<uint32_t>(Pick({2, 8, 100}));
    engine.prefix_cache = !random_.OneIn(5);
    engine.token_target = absl::Milliseconds(Pick({0, 0, 5}));
    // Masks by the engine's thread, or by others.
    engine.quick_constraint_work = random_.OneIn(2) ? UINT64_MAX : 0;
    engine.down_wait = absl::Seconds(Pick({2, 20}));
    scenario_.drafts = random_.OneIn(4);
  }

  std::vector<uint32_t> Letters(uint32_t count, uint32_t num_letters) {
    std::vector<uint32_t> letters;
    for (uint32_t i = 0; i < count; ++i)
      letters.push_back(kFirstLetter + Number(0, num_letters - 1));
    return letters;
  }

  void DrawRequests() {
    // Few letters repeat, which is what lookup guesses from.
    const uint32_t num_letters = scenario_.drafts ? 3 : kNumLetters;
    std::vector<std::vector<uint32_t>> prefixes;
    for (int i = 0; i < 3; ++i) prefixes.push_back(Letters(Number(0, 90), num_letters));
    const uint32_t count = Number(1, 24);
    for (uint32_t i = 0; i < count; ++i) {
      SimulatedRequest& simulated = scenario_.requests.emplace_back();
      simulated.arrival = random_.Between(absl::ZeroDuration(), kRequestsWithin);
      gateway::EngineRequest& request = simulated.request;
      request.request_id = absl::StrFormat("r%d", i);
      request.prompt = {gateway::testing::kToyBos};
      const auto& prefix = prefixes[random_.Between(0, 2)];
      request.prompt.insert(request.prompt.end(), prefix.begin(), prefix.end());
      const auto rest = Letters(Number(1, 60), num_letters);
      request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
      request.max_tokens = Number(1, 40);
      request.ignore_eos = random_.OneIn(2);
      request.sampling.temperature = 0.0f;
      if (random_.OneIn(2)) {
        request.sampling.temperature = 0.8f;
        request.sampling.seed = random_.Between(0, UINT64_MAX - 1);
        request.sampling.top_k = static_cast<uint32_t>(Pick({0, 1, 20, 64}));
        if (random_.OneIn(4)) request.sampling.repetition_penalty = 1.3f;
      }
      request.num_alternatives = static_cast<uint32_t>(Pick({0, 0, 2}));
      request.prompt_logprobs = random_.OneIn(8);
      request.use_prefix_cache = !random_.OneIn(8);
      request.priority = static_cast<int32_t>(Number(0, 8)) / 4 - 1;
      if (random_.OneIn(10)) {
        request.embedding = true;
        request.max_tokens = 0;
      } else if (random_.OneIn(6)) {
        request.constraint = random_.OneIn(2) ? TheSchema() : ThePattern();
        request.ignore_eos = false;
        request.max_tokens = 60;
      }
      if (random_.OneIn(6)) {
        simulated.cancel_after = random_.Between(absl::ZeroDuration(), absl::Seconds(1));
      }
      if (random_.OneIn(6)) {
        simulated.pause = random_.Between(absl::Milliseconds(10), absl::Milliseconds(500));
      }
    }
    std::ranges::sort(scenario_.requests, {}, &SimulatedRequest::arrival);
  }

  // By a source of its own, so that the other draws stay as they were.
  void DrawPhases() {
    RandomSource random(scenario_.seed ^ 0x9A5E5);
    std::vector<SimulatedReplica>& replicas = scenario_.replicas;
    if (replicas.size() == 1) return;
    // From a block or two to a whole cache.
    scenario_.executor.kv_area_bytes = random.Between(1, 64) * 4096;
    for (WorkerSetup& worker : scenario_.workers) worker.description.copies_kv = !random.OneIn(16);
    if (!scenario_.engine.prefix_cache || random.OneIn(3)) return;
    const uint64_t num_prompts = random.Between(1, replicas.size() - 1);
    const bool others_decode = !random.OneIn(3);
    for (size_t r = 0; r < replicas.size(); ++r) {
      if (r < num_prompts) {
        replicas[r].role = gateway::ReplicaRole::kPrompts;
      } else if (others_decode) {
        replicas[r].role = gateway::ReplicaRole::kDecode;
      }
    }
  }

  WorkerTrouble DrawWorkerTrouble() {
    WorkerTrouble trouble;
    const auto rarely = [this] { return static_cast<double>(Number(1, 50)) * 1e-3; };
    switch (Number(0, 8)) {
      case 0:
        trouble.lose = rarely();
        break;
      case 1:
        trouble.repeat = rarely();
        break;
      case 2:
        trouble.stray = rarely();
        break;
      case 3:
        trouble.late = 10 * rarely();
        trouble.late_by = random_.Between(absl::Milliseconds(1), absl::Seconds(8));
        break;
      case 4:
        trouble.fail_step = rarely();
        break;
      case 5:
        trouble.lose_device = rarely();
        break;
      case 6:
        trouble.refuse_load = 0.5;
        trouble.lose_device = rarely();
        break;
      case 7:
        trouble.stall = random_.Between(absl::Milliseconds(100), absl::Seconds(45));
        break;
      default:
        trouble.slower = Number(2, 30);
        break;
    }
    return trouble;
  }

  void DrawTroubles() {
    const uint32_t count = Number(1, 10);
    for (uint32_t i = 0; i < count; ++i) {
      Trouble& trouble = scenario_.troubles.emplace_back();
      trouble.at = random_.Between(absl::ZeroDuration(), kTroublesWithin);
      trouble.lasts = random_.Between(absl::Milliseconds(10), absl::Seconds(5));
      trouble.subject = random_.Between(0, scenario_.workers.size() - 1);
      switch (Number(0, 9)) {
        case 0:
          trouble.kind = TroubleKind::kKillLoader;
          break;
        case 1:
        case 2:
        case 3:
          trouble.kind = TroubleKind::kKillWorker;
          break;
        case 4:
          if (scenario_.replicas.size() > 1) {
            trouble.kind = TroubleKind::kLeave;
            trouble.subject = random_.Between(0, scenario_.replicas.size() - 1);
            break;
          }
          [[fallthrough]];
        default:
          trouble.worker = DrawWorkerTrouble();
          break;
      }
    }
    if (random_.OneIn(12)) {
      scenario_.troubles.push_back(
          {.kind = TroubleKind::kShutDown,
           .at = random_.Between(absl::ZeroDuration(), kTroublesWithin),
           .lasts = random_.Between(absl::ZeroDuration(), absl::Seconds(2))});
    }
    std::ranges::sort(scenario_.troubles, {}, &Trouble::at);
  }

  RandomSource random_;
  Scenario scenario_;
};

std::string DescribeTrouble(const Scenario& scenario, const Trouble& trouble) {
  const std::string when = absl::StrFormat("%s for %s: ", absl::FormatDuration(trouble.at),
                                           absl::FormatDuration(trouble.lasts));
  switch (trouble.kind) {
    case TroubleKind::kKillLoader:
      return when + "the loader is dead";
    case TroubleKind::kLeave:
      return when + absl::StrFormat("replica %d is away", trouble.subject);
    case TroubleKind::kShutDown:
      return when + "the gateway drains, then stops";
    case TroubleKind::kKillWorker:
      return when + scenario.workers[trouble.subject].description.name + " is dead";
    default:
      break;
  }
  const WorkerTrouble& worker = trouble.worker;
  std::vector<std::string> parts;
  const auto add = [&](const std::string& what, double probability) {
    if (probability > 0) parts.push_back(absl::StrFormat("%s (%g)", what, probability));
  };
  add("loses", worker.lose);
  add("repeats", worker.repeat);
  add("answers other calls", worker.stray);
  add("is late by up to " + absl::FormatDuration(worker.late_by), worker.late);
  add("fails steps", worker.fail_step);
  add("loses its device", worker.lose_device);
  add("refuses plans", worker.refuse_load);
  if (worker.stall > absl::ZeroDuration()) {
    parts.push_back("stalls " + absl::FormatDuration(worker.stall));
  }
  if (worker.slower > 1) parts.push_back(absl::StrFormat("is %d times slower", worker.slower));
  return when + scenario.workers[trouble.subject].description.name + " " +
         absl::StrJoin(parts, ", ");
}

}  // namespace

absl::Duration Scenario::Calm() const {
  absl::Duration calm;
  for (const SimulatedRequest& request : requests) calm = std::max(calm, request.arrival);
  for (const Trouble& trouble : troubles) calm = std::max(calm, trouble.at + trouble.lasts);
  return calm;
}

bool Scenario::MayLoseWorkers() const {
  return std::ranges::any_of(troubles, [](const Trouble& trouble) {
    const WorkerTrouble& worker = trouble.worker;
    return trouble.kind != TroubleKind::kWorkerTrouble ||
           std::max({worker.lose, worker.repeat, worker.stray, worker.late, worker.lose_device,
                     worker.refuse_load}) > 0 ||
           worker.stall > absl::ZeroDuration();
  });
}

bool Scenario::MayFailSteps() const {
  return std::ranges::any_of(troubles,
                             [](const Trouble& trouble) { return trouble.worker.fail_step > 0; });
}

Scenario DrawScenario(uint64_t seed) { return Draw(seed).All(); }

std::string Describe(const Scenario& scenario) {
  std::string text = absl::StrFormat("seed %d", scenario.seed);
  for (size_t r = 0; r < scenario.replicas.size(); ++r) {
    const std::string role(gateway::RoleName(scenario.replicas[r].role));
    absl::StrAppendFormat(&text, "\n  replica %d%s%s on", r, role.empty() ? "" : " for ", role);
    for (const auto* indices : {&scenario.replicas[r].workers, &scenario.replicas[r].npus}) {
      for (const size_t index : *indices) {
        const WorkerSetup& worker = scenario.workers[index];
        absl::StrAppendFormat(&text, " %s%s%s", worker.description.name,
                              worker.remote ? " (remote)" : "",
                              worker.description.feeds_steps ? " (feeds)" : "");
      }
    }
  }
  const gateway::ExecutorOptions& executor = scenario.executor;
  absl::StrAppendFormat(
      &text, "\n  %d rows, %d sequences, chunks of %d, blocks of %d, %d positions, npu %s%s%s%s%s",
      executor.max_rows, executor.max_sequences, scenario.engine.chunk_rows, executor.block_tokens,
      executor.kv_tokens, std::string(NpuPolicyName(executor.policy.npu)),
      executor.queue_steps ? ", queued steps" : "", scenario.drafts ? ", drafts" : "",
      scenario.engine.prefix_cache ? ", prefix cache" : "",
      scenario.engine.token_target > absl::ZeroDuration() ? ", token target" : "");
  for (const SimulatedRequest& simulated : scenario.requests) {
    const gateway::EngineRequest& request = simulated.request;
    absl::StrAppendFormat(&text, "\n  %s at %s: %d + %d tokens%s%s%s%s", request.request_id,
                          absl::FormatDuration(simulated.arrival), request.prompt.size(),
                          request.max_tokens,
                          request.embedding               ? ", an embedding"
                          : request.constraint != nullptr ? ", constrained"
                                                          : "",
                          request.sampling.temperature > 0 ? ", sampled" : "",
                          simulated.pause > absl::ZeroDuration() ? ", read slowly" : "",
                          simulated.cancel_after < absl::InfiniteDuration()
                              ? ", cancelled after " + absl::FormatDuration(simulated.cancel_after)
                              : "");
  }
  for (const Trouble& trouble : scenario.troubles) {
    text += "\n  " + DescribeTrouble(scenario, trouble);
  }
  return text;
}

}  // namespace tandem::simulate

// One model, served side by side by several replicas: plans on workers of their own, each with an
// engine, a scheduler and a KV cache.
//
//                                   +-> Engine 0 -> its workers
//   Submit -> choose a replica -----+-> Engine 1 -> its workers
//             (route.h)             +-> Engine 2: being loaded, or its workers are lost
//
// When an engine loses a worker, its requests go on at the others at once (engine/neighbours.h), and
// their tokens are computed again there.  A replica that cannot be loaded is tried again until it is
// there; the others serve meanwhile.
//
// Replicas may have roles: those for prompts compute them, and hand each request to one for decoding,
// with its KV (engine/kv_hand_over.h).
//
// Replicas join and leave while the others serve (Update).  One that leaves gets no new requests while
// another serves, hands over those that it has, and ends when it has none.
//
// With one replica that stays alone this passes everything on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/request_sink.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/replicas/prefix_directory.h"
#include "services/gateway/replicas/replica_role.h"
#include "services/gateway/replicas/serial_observers.h"
#include "services/gateway/tokenizer/tokenizer.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

using StartExecutor =
    std::function<absl::StatusOr<std::unique_ptr<Executor>>(const Executor::Progress&)>;

// How a replica is started.
struct ReplicaStart {
  std::string key;             // no other replica has it
  StartExecutor start;         // loads its plan; errors as Executor::Start
  MakeDrafters make_drafters;  // null: the engine options'
  ReplicaRole role = ReplicaRole::kBoth;
};

struct ReplicaStarts {
  std::vector<ReplicaStart> all;  // one at least
  bool change = false;            // whether others may follow (Replicas::Update)
  bool shows_lone = true;  // whether the status lists a replica that is alone, where others may
};

// An executor that is loaded, of the replica with this number.
struct LoadedReplica {
  uint32_t replica = 0;
  std::unique_ptr<Executor> executor;
};

// Thread-safe.
class Replicas final : public RequestSink {
 public:
  // Starts the engine of `first`, and in the background every other replica of `starts`.
  // `tokenizer`: Borrowed; must outlive this.  `options`: of every engine; on_model_changed is called
  // when the last engine has ended so.  INVALID_ARGUMENT as Engine::Create.
  // REQUIRES first.replica < starts.all.size().
  static absl::StatusOr<std::unique_ptr<Replicas>> Create(LoadedReplica first,
                                                          const Tokenizer& tokenizer,
                                                          EngineOptions options,
                                                          ReplicaStarts starts);
  // Ends every request with UNAVAILABLE.
  ~Replicas() override;

  using RequestSink::Submit;
  // Hands the request to a replica.  Errors as of the one that is best for it.
  absl::Status Submit(EngineRequest&& request, std::shared_ptr<TokenStream> stream) override;
  // Whether Submit would find a place now, before work is done for a request that it would refuse.
  absl::Status CheckPlace(const EngineRequest& request) const;
  // Tells the observers of a request that was refused before it was submitted.
  void ReportRefused(Api api, const absl::Status& status) const;

  // The replicas that there shall be: those with new keys join, those whose keys are missing leave.
  // REQUIRES ReplicaStarts::change of Create, and one replica at least.
  void Update(std::vector<ReplicaStart> wanted);

  // Of all engines, as Engine's.
  void Drain(absl::Duration patience);
  void Stop();
  // Whether an engine is recovering, or a replica is being loaded.
  bool waiting() const;
  // By replica with an engine: counts what it does, in steps and between them.
  std::vector<uint64_t> progress() const;
  bool drafts() const;
  // The most of any replica: tokens of prompt and answer together.
  uint32_t max_sequence_len() const;
  // Of all replicas that are there, as text.
  std::string placement() const;
  // Fills everything but version, model and uptime.
  void FillStatus(v1::GetStatusResponse& status) const;
  // Sums.
  SchedulerCounters counters() const;

 private:
  static constexpr uint32_t kNobody = ~0u;
  // The others, as an engine sees them.
  class Others final : public Neighbours {
   public:
    Others(Replicas& all, uint32_t self) : all_(all), self_(self) {}
    bool ready() const override { return all_.AnyReadyBut(self_); }
    bool Offer(const EngineRequest& request,
               const std::shared_ptr<KvHandOver>& hand_over) override {
      return all_.OfferFrom(self_, request, hand_over);
    }
    bool Take(std::unique_ptr<MovedRequest>& moved) override { return all_.MoveFrom(self_, moved); }
    void Keeps(const EngineRequest& request, std::span<const uint32_t> tokens) override {
      all_.NoteKept(self_, request, tokens);
    }

   private:
    Replicas& all_;
    const uint32_t self_;
  };
  struct Replica {
    ReplicaStart start;
    std::unique_ptr<Others> others;
    std::shared_ptr<Engine> engine;  // null: not loaded yet
    bool ready = false;              // its workers are there
    bool ended = false;              // its model is lost: it takes no more requests
    bool leaving = false;
    bool gone = false;              // it has left
    std::string state = "loading";  // while there is no engine, or after its end
    std::string detail;
    uint64_t given = 0;  // requests
    absl::Time given_at = absl::InfinitePast();
    uint64_t given_known = 0;  // of them, those whose prefixes it had
    std::thread starter;       // Start
    std::thread leaver;        // Leave
  };

  Replicas(const Tokenizer& tokenizer, EngineOptions options, bool alone, bool shows_lone);

  // A new one, which has the next number.
  Replica& Add(ReplicaStart start) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A replica's parts that never change.
  Replica& At(uint32_t replica) const;
  EngineOptions OptionsOf(uint32_t replica);
  // Makes the engine.  FAILED_PRECONDITION: the executor has loaded another model.
  absl::Status Join(uint32_t replica, std::unique_ptr<Executor> executor);
  // A thread: tries to Join until that succeeds, or the replica leaves.
  void Start(uint32_t replica);
  // A thread: waits until the replica has no requests, and ends its engine.
  void Leave(uint32_t replica);
  absl::Status StartOnce(uint32_t replica);
  void SetState(uint32_t replica, std::string state, std::string detail);
  void OnReadyChange(uint32_t replica, bool ready);
  void OnModelChanged(uint32_t replica);
  bool AnyReadyBut(uint32_t replica) const;
  bool AnyServesBut(uint32_t replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MoveFrom(uint32_t replica, std::unique_ptr<MovedRequest>& moved);
  bool OfferFrom(uint32_t replica, const EngineRequest& request,
                 const std::shared_ptr<KvHandOver>& hand_over);
  // The phase that a request is in.
  enum class Work : uint8_t { kPrompt, kDecode };
  // How well a replica is placed for it.
  enum class Rank : uint8_t { kBest, kServes, kOtherRole, kLeaves, kLost, kTooSmall, kGone };
  // A replica that may take a request.
  struct Choice {
    uint32_t replica = 0;
    std::shared_ptr<Engine> engine;
    size_t num_known = 0;  // leading blocks
    Rank rank = Rank::kGone;
  };
  Rank RankOf(uint32_t replica, const EngineRequest& request, const PrefixKeys& keys,
              Work work) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those that may take it, the best first, down to rank `least`, without `except`: that engine's
  // thread may call this, and must not be what keeps the engine alive.  Where none serves it, only
  // those of the first rank that any has.
  std::vector<Choice> ChoicesFor(const EngineRequest& request, const PrefixKeys& keys, Work work,
                                 Rank least = Rank::kLost, uint32_t except = kNobody) const;
  // Hands it to the best that takes it.  The error of the best one.
  absl::Status SubmitToBest(EngineRequest& request, const std::shared_ptr<TokenStream>& stream,
                            const PrefixKeys& keys);
  PrefixKeys KeysOf(const EngineRequest& request) const;
  void NoteGiven(const Choice& choice, const PrefixKeys& keys);
  void NoteKept(uint32_t replica, const EngineRequest& request, std::span<const uint32_t> tokens);
  // By replica; null: it is not loaded, or has left.
  std::vector<std::shared_ptr<Engine>> engines() const;
  void FillReplica(uint32_t replica, const v1::GetStatusResponse& own,
                   v1::ReplicaStatus& status) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Tokenizer& tokenizer_;  // Borrowed.
  const EngineOptions options_;
  const bool alone_;
  const bool shows_lone_;
  SerialObservers observers_;
  const std::shared_ptr<RequestIds> ids_ = std::make_shared<RequestIds>();
  const std::shared_ptr<StreamNotifier> notifier_ = std::make_shared<StreamNotifier>();
  std::string model_id_;       // from Create on
  uint32_t block_tokens_ = 1;  // likewise

  mutable Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // By number; those that have left stay.  What the pointers point to is guarded too, but for `start`
  // and `others`.
  std::vector<std::unique_ptr<Replica>> replicas_ ABSL_GUARDED_BY(mutex_);
  PrefixDirectory directory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway

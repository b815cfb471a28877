// Requests that go on in another engine when their own has lost its workers.
//
//   engine 0: worker lost -> Neighbours::Take(request) -> Engine::Adopt of engine 1 -> computed again
//
// Everything of a request moves but its KV: tokens, sampler, constraint, text that is held back and
// the reader's stream.  While its own workers are alive, the KV can be handed over before
// (kv_hand_over.h).  Draws depend on seed and position alone, so the stream goes on as it would
// have.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "services/gateway/engine/kv_hand_over.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/scheduler/sequence.h"

namespace tandem::gateway {

// A request on its way from one engine to another.
struct MovedRequest {
  uint64_t id = 0;  // no other request of any of the engines has it
  std::unique_ptr<RequestRun> run;
  SequenceProgress progress;
  // It goes where this has arrived; null: wherever there is room, to be computed again.
  std::shared_ptr<KvHandOver> hand_over;
};

// Engines of the same model and tokenizer beside an engine.  Thread-safe.
class Neighbours {
 public:
  virtual ~Neighbours() = default;
  // Whether one of them could take a request now.
  virtual bool ready() const = 0;
  // Finds one that goes on with a request whose prompt is being computed.  False: none does.
  virtual bool Offer(const EngineRequest& request,
                     const std::shared_ptr<KvHandOver>& hand_over) = 0;
  // Hands a request over.  False: none takes it, and `moved` is as it was.
  virtual bool Take(std::unique_ptr<MovedRequest>& moved) = 0;
  // A request has ended, and its KV of `tokens`, whole blocks, is in this engine's prefix cache.
  virtual void Keeps(const EngineRequest& request, std::span<const uint32_t> tokens) = 0;
};

}  // namespace tandem::gateway

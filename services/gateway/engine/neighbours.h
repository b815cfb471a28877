// Requests that go on in another engine when their own has lost its workers.
//
//   engine 0: worker lost -> Neighbours::Take(request) -> Engine::Adopt of engine 1 -> computed again
//
// Everything of a request moves but its KV: tokens, sampler, constraint, text that is held back and
// the reader's stream.  Draws depend on seed and position alone, so the stream goes on as it would
// have.
#pragma once

#include <cstdint>
#include <memory>

#include "services/gateway/engine/request_run.h"
#include "services/gateway/scheduler/sequence.h"

namespace tandem::gateway {

// A request on its way from one engine to another.
struct MovedRequest {
  uint64_t id = 0;  // no other request of any of the engines has it
  std::unique_ptr<RequestRun> run;
  SequenceProgress progress;
};

// Engines of the same model and tokenizer beside an engine.  Thread-safe.
class Neighbours {
 public:
  virtual ~Neighbours() = default;
  // Whether one of them could take a request now.
  virtual bool ready() const = 0;
  // Hands a request over.  False: none takes it, and `moved` is as it was.
  virtual bool Take(std::unique_ptr<MovedRequest>& moved) = 0;
};

}  // namespace tandem::gateway

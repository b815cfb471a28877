// KV on its way from the engine that computed it to the one where its request goes on.
//
//   sender                                          receiver
//   Neighbours::Offer -------------------------> Engine::Expect
//                        <---------------------- Accept: the blocks that it has already
//   Put, Put, ... Finish ----------------------> Take: its workers write them, and its prefix cache
//                        <---------------------- Arrived          finds them
//   Neighbours::Take, with the request --------> Engine::Adopt
//
// The sender computes on meanwhile: the next chunk of the prompt, then tokens.  A hand-over fills the
// receiver's prefix cache and nothing else, so either side may give up at any time: what did not
// arrive is computed there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/common/tensor/dtype.h"

namespace tandem::gateway {

// Blocks [first_block, end_block) of a prefix, as KvCopyLayout lays out the global ones and then the
// window ones.
struct KvPiece {
  uint32_t first_block = 0;
  uint32_t end_block = 0;
  std::vector<std::byte> bytes;
};

// The prefix that is handed over.
struct KvPrefix {
  uint64_t request = 0;
  std::string scope;             // PrefixScopeOf
  std::vector<uint32_t> tokens;  // of whole blocks, as the prefix cache tells them apart
  uint32_t block_tokens = 0;
  uint32_t first_window = 0;  // blocks from this one on have window blocks
  DType kv_dtype = DType::kF16;

  uint32_t num_blocks() const { return static_cast<uint32_t>(tokens.size()) / block_tokens; }
};

// Memory of pieces, used again: fresh pages cost more than the copy.  Thread-safe.
class KvBuffers {
 public:
  // One that was put, with what it has, or an empty one.
  std::vector<std::byte> Get();
  void Put(std::vector<std::byte> buffer);

 private:
  static constexpr size_t kMostFree = 4;

  Mutex mutex_;
  std::vector<std::vector<std::byte>> free_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe.
class KvHandOver {
 public:
  enum class End : uint8_t {
    kOpen,     // it goes on
    kGivenUp,  // or the request has ended
    kRefused,  // by the receiver: it would fail again there
    kBadKv,    // the KV gave NaN logits: the receiver forgets what it has
  };

  // `buffers`: where the memory of pieces that were written goes; may be null.  `refused_by`: replicas
  // that have refused the same KV.
  explicit KvHandOver(KvPrefix prefix, std::shared_ptr<KvBuffers> buffers = nullptr,
                      std::vector<uint32_t> refused_by = {})
      : prefix_(std::move(prefix)),
        buffers_(std::move(buffers)),
        refused_by_(std::move(refused_by)) {}

  const KvPrefix& prefix() const { return prefix_; }
  const std::vector<uint32_t>& refused_by() const { return refused_by_; }

  // --- The sender.
  // Blocks that the receiver has; nullopt: it has not accepted yet.
  std::optional<uint32_t> accepted() const;
  // Pieces that wait for the receiver.
  size_t num_waiting() const;
  void Put(KvPiece piece);
  // No piece follows.
  void Finish();
  bool arrived() const;

  // --- The receiver.
  // `wake`: called when there is something to take, until Abandon; must not call this.
  void Accept(uint32_t num_blocks, std::function<void()> wake);
  std::optional<KvPiece> Take();
  // A piece that was taken is no longer needed.
  void GiveBack(KvPiece piece);
  // Whether all pieces have been taken.
  bool finished() const;
  void Arrive();

  // The number of the receiver's replica.
  void SetReceiver(uint32_t replica);
  uint32_t receiver() const;

  // --- Both.
  // Ends it; nothing more is taken.  REQUIRES an end other than kOpen.
  void Abandon(End why = End::kGivenUp);
  End end() const;

 private:
  const KvPrefix prefix_;
  const std::shared_ptr<KvBuffers> buffers_;
  const std::vector<uint32_t> refused_by_;
  mutable Mutex mutex_;
  uint32_t receiver_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<uint32_t> accepted_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
  std::deque<KvPiece> pieces_ ABSL_GUARDED_BY(mutex_);
  bool all_put_ ABSL_GUARDED_BY(mutex_) = false;
  bool arrived_ ABSL_GUARDED_BY(mutex_) = false;
  End end_ ABSL_GUARDED_BY(mutex_) = End::kOpen;
};

}  // namespace tandem::gateway

// Whether something that counts its turns still does.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace tandem {

// Single-thread.
class ProgressWatch {
 public:
  // False once `turns` has been the same for longer than `patience`, by the times of the calls.
  bool Moves(uint64_t turns, absl::Time now, absl::Duration patience) {
    if (turns != turns_ || since_ == absl::InfiniteFuture()) {
      turns_ = turns;
      since_ = now;
    }
    return now - since_ <= patience;
  }

 private:
  uint64_t turns_ = 0;
  absl::Time since_ = absl::InfiniteFuture();  // before the first call
};

}  // namespace tandem

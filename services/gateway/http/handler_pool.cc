#include "services/gateway/http/handler_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "services/common/base/check.h"
#include "services/gateway/http/body_budget.h"

namespace tandem::gateway {
namespace {

// A third of the processor time of another thread, where there is too little for both.
constexpr int kNice = 5;

}  // namespace

HandlerPool::HandlerPool(uint32_t num_threads) : max_large_(num_threads / 2) {
  TANDEM_CHECK(num_threads >= 2);
  for (uint32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

HandlerPool::~HandlerPool() { Stop(); }

void HandlerPool::Post(const std::string& sender, size_t body_bytes, std::function<void()> work) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  (body_bytes <= kSmallBodyBytes ? small_ : large_).Push(sender, std::move(work));
  changed_.SignalOne();
}

void HandlerPool::Stop() {
  {
    Line small, large;  // destroyed with no lock held
    MutexLock lock(mutex_);
    stopping_ = true;
    std::swap(small, small_);
    std::swap(large, large_);
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void HandlerPool::Run() {
  // Many requests at once must not keep those that are served from their thread.  On Linux a thread
  // has a priority of its own; where the call is not allowed, as in the systemd unit, it keeps that.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
  while (true) {
    std::function<void()> work;
    bool large = false;
    {
      MutexLock lock(mutex_);
      while (true) {
        // If no large one is under way, a large one goes first, so that it does not wait for ever.
        const bool has_large = !large_.empty() && num_large_ < max_large_;
        large = has_large && (small_.empty() || num_large_ == 0);
        if (large || !small_.empty()) break;
        if (stopping_) return;
        changed_.Wait(mutex_);
      }
      work = (large ? large_ : small_).Pop();
      if (large) ++num_large_;
    }
    work();
    work = nullptr;
    if (!large) continue;
    MutexLock lock(mutex_);
    --num_large_;
    changed_.SignalOne();
  }
}

}  // namespace tandem::gateway

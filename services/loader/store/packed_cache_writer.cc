#include "services/loader/store/packed_cache_writer.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/base/logging.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/status_macros.h"

namespace tandem::loader {

PackedCacheWriter::~PackedCacheWriter() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    next_.reset();
  }
  thread_.join();
}

void PackedCacheWriter::Post(Job job) {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  next_ = std::move(job);
}

void PackedCacheWriter::Cancel() {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !writing_; };
  absl::MutexLock lock(&mutex_);
  next_.reset();
  cancelled_ = true;
  mutex_.Await(absl::Condition(&idle));
}

void PackedCacheWriter::Wait() {
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !writing_ && !next_.has_value();
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&idle));
}

bool PackedCacheWriter::KeepGoing() {
  absl::MutexLock lock(&mutex_);
  return !cancelled_ && !stopping_;
}

absl::Status PackedCacheWriter::Write(const Job& job) {
  std::vector<Mapping> regions;
  for (const auto& [fd, bytes] : job.regions) {
    TANDEM_ASSIGN_OR_RETURN(Mapping mapping,
                            Mapping::Map(fd.get(), bytes, Mapping::Access::kReadOnly));
    regions.push_back(std::move(mapping));
  }
  return cache_.Write(job.name, regions, [this] { return KeepGoing(); });
}

void PackedCacheWriter::Run() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || next_.has_value();
  };
  while (true) {
    std::optional<Job> job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      job.swap(next_);
      writing_ = true;
      cancelled_ = false;
    }
    const absl::Time start = absl::Now();
    const absl::Status status = Write(*job);
    const std::string content_id = job->name.content_id;
    job.reset();
    if (status.ok()) {
      const PackedCache::Contents contents = cache_.contents();
      LogInfo("packed weights kept",
              {{"model_id", content_id},
               {"seconds", LogValue(absl::ToDoubleSeconds(absl::Now() - start), 1)},
               {"folder", cache_.folder()},
               {"files", contents.num_files},
               {"bytes", contents.bytes}});
    } else if (!absl::IsCancelled(status) && !absl::IsAlreadyExists(status)) {
      LogWarning("packed weights not kept; the next start packs again",
                 {{"model_id", content_id}, {"reason", std::string(status.message())}});
    }
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
}

}  // namespace tandem::loader

#include "services/gateway/picture/picture_fetcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

// Longest wait for the network: deadlines of waiting jobs are looked at as often.  A wakeup ends it.
constexpr int kPollMilliseconds = 500;
constexpr int kIdleMilliseconds = 3'600'000;
constexpr char kTooManyWait[] = "too many pictures wait to be fetched; try again later";

}  // namespace

struct PictureFetcher::Job {
  Ticket ticket = kNoTicket;
  FetchJob asked;
  Done done;
  absl::Time deadline;
  uint64_t num_bytes = 0;  // of the files that are there
  // From here on the thread's.
  std::vector<size_t> todo;                    // the first file of each URL, the next one last
  std::map<std::string, std::string> fetched;  // by URL
  size_t num_left = 0;                         // URLs
  uint32_t num_transfers = 0;
  uint64_t room = 0;  // bytes that may still come
};

struct PictureFetcher::Transfer {
  std::shared_ptr<Job> job;  // shared with running_
  size_t file;
  absl::Time begin;
  FetchTransfer transfer;
};

absl::StatusOr<std::unique_ptr<PictureFetcher>> PictureFetcher::Create(
    PictureFetcherOptions options) {
  TANDEM_ASSIGN_OR_RETURN(FetchRules rules, FetchRules::Create(options.hosts));
  return std::unique_ptr<PictureFetcher>(new PictureFetcher(std::move(options), std::move(rules)));
}

PictureFetcher::PictureFetcher(PictureFetcherOptions options, FetchRules rules)
    : options_(std::move(options)),
      rules_(std::move(rules)),
      multi_(pull::MakeMulti()),
      thread_([this] { Run(); }) {}

PictureFetcher::~PictureFetcher() {
  Stop(absl::UnavailableError("the gateway is shutting down"));
  {
    MutexLock lock(mutex_);
    ends_ = true;
  }
  curl_multi_wakeup(multi_.get());
  thread_.join();
}

PictureFetcher::Ticket PictureFetcher::Get(FetchJob asked, Done done) {
  auto job = std::make_shared<Job>();
  job->deadline = std::min(asked.deadline, absl::Now() + options_.job_timeout);
  job->room = options_.max_job_bytes;
  const std::vector<std::string>& urls = *asked.urls;
  for (size_t i = urls.size(); i-- > 0;) {
    const bool first = std::find(urls.begin(), urls.begin() + static_cast<ptrdiff_t>(i), urls[i]) ==
                       urls.begin() + static_cast<ptrdiff_t>(i);
    if (!urls[i].empty() && first) job->todo.push_back(i);
  }
  job->num_left = job->todo.size();
  for (const std::string& file : *asked.files) job->num_bytes += file.size();
  job->asked = std::move(asked);
  absl::Status room;
  {
    MutexLock lock(mutex_);
    room = CheckRoom(*job);
    if (room.ok()) {
      job->ticket = ++last_ticket_;
      job->done = std::move(done);
      open_.emplace(job->ticket, job);
      waiting_.push_back(job);
    }
  }
  if (!room.ok()) {
    done(room);
    return kNoTicket;
  }
  curl_multi_wakeup(multi_.get());
  return job->ticket;
}

absl::Status PictureFetcher::CheckRoom(const Job& job) const {
  if (!stopped_.ok()) return stopped_;
  uint32_t own = 0;
  uint64_t bytes = job.num_bytes, own_bytes = job.num_bytes;
  for (const std::shared_ptr<Job>& other : waiting_) {
    bytes += other->num_bytes;
    if (other->asked.sender != job.asked.sender) continue;
    own_bytes += other->num_bytes;
    ++own;
  }
  const bool many =
      waiting_.size() >= options_.max_waiting || own >= options_.max_waiting_per_sender;
  // One job always fits.
  const bool large = own > 0 && own_bytes > options_.max_waiting_bytes_per_sender;
  if (many || large || (!waiting_.empty() && bytes > options_.max_waiting_bytes)) {
    return absl::ResourceExhaustedError(kTooManyWait);
  }
  return absl::OkStatus();
}

void PictureFetcher::Cancel(Ticket ticket) {
  std::shared_ptr<Job> job;
  {
    MutexLock lock(mutex_);
    const auto found = open_.find(ticket);
    if (found == open_.end()) return;
    job = found->second;
    open_.erase(found);
  }
  curl_multi_wakeup(multi_.get());
  job->done(absl::CancelledError("the client has gone"));
}

void PictureFetcher::Stop(const absl::Status& why) {
  std::map<Ticket, std::shared_ptr<Job>> open;
  {
    MutexLock lock(mutex_);
    if (stopped_.ok()) stopped_ = why;
    open.swap(open_);
  }
  curl_multi_wakeup(multi_.get());
  for (const auto& [ticket, job] : open) job->done(why);
}

PictureFetcher::Counts PictureFetcher::counts() const {
  MutexLock lock(mutex_);
  return {.waiting = static_cast<uint32_t>(waiting_.size()),
          .running = static_cast<uint32_t>(running_.size()),
          .transfers = num_transfers_};
}

uint32_t PictureFetcher::NumRunning(const std::string& sender) const {
  return static_cast<uint32_t>(std::ranges::count_if(
      running_, [&](const auto& other) { return other->asked.sender == sender; }));
}

std::shared_ptr<PictureFetcher::Job> PictureFetcher::TakeNext() {
  if (running_.size() >= options_.max_running) return nullptr;
  auto best = waiting_.end();
  uint32_t fewest = options_.max_running_per_sender;
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    const uint32_t num = NumRunning((*it)->asked.sender);
    if (num >= fewest) continue;
    fewest = num;
    best = it;
  }
  if (best == waiting_.end()) return nullptr;
  std::shared_ptr<Job> job = *best;
  waiting_.erase(best);
  running_.push_back(job);
  return job;
}

void PictureFetcher::Run() {
  while (true) {
    EndLate();
    Advance();
    bool idle = false;
    {
      MutexLock lock(mutex_);
      idle = waiting_.empty() && running_.empty();
      if (ends_ && idle) return;
    }
    int running = 0, left = 0;
    curl_multi_perform(multi_.get(), &running);
    bool ended = false;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      ended = true;
      FinishTransfer(message->easy_handle, message->data.result);
    }
    if (ended) continue;
    curl_multi_poll(multi_.get(), nullptr, 0, idle ? kIdleMilliseconds : kPollMilliseconds,
                    nullptr);
  }
}

void PictureFetcher::EndLate() {
  std::vector<std::shared_ptr<Job>> late;
  const absl::Time now = absl::Now();
  {
    MutexLock lock(mutex_);
    for (const auto& [ticket, job] : open_) {
      if (now >= job->deadline) late.push_back(job);
    }
  }
  for (const std::shared_ptr<Job>& job : late) {
    Answer(job, now >= job->asked.deadline
                    ? absl::DeadlineExceededError("the deadline passed while pictures were fetched")
                    : absl::ResourceExhaustedError(absl::StrFormat(
                          "the pictures were not fetched within %s; try again later",
                          absl::FormatDuration(options_.job_timeout))));
  }
}

void PictureFetcher::Advance() {
  std::vector<std::shared_ptr<Job>> running;
  {
    MutexLock lock(mutex_);
    const auto answered = [&](const std::shared_ptr<Job>& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                              mutex_) { return !open_.contains(job->ticket); };
    std::erase_if(waiting_, answered);
    std::erase_if(running_, answered);
    while (TakeNext() != nullptr) {
    }
    running.assign(running_.begin(), running_.end());
  }
  std::erase_if(transfers_, [&](const auto& entry) {
    if (std::ranges::find(running, entry.second->job) != running.end()) return false;
    curl_multi_remove_handle(multi_.get(), entry.first);
    return true;
  });
  num_transfers_ = static_cast<uint32_t>(transfers_.size());
  for (const std::shared_ptr<Job>& job : running) StartTransfers(job);
}

void PictureFetcher::StartTransfers(const std::shared_ptr<Job>& job) {
  while (!job->todo.empty() && job->num_transfers < options_.max_fetches) {
    const size_t file = job->todo.back();
    job->todo.pop_back();
    auto url = rules_.Check((*job->asked.urls)[file]);
    if (!url.ok()) return Answer(job, url.status());
    auto transfer = std::unique_ptr<Transfer>(new Transfer{
        job, file, absl::Now(), {*std::move(url), rules_, options_.limits, job->room}});
    transfer->transfer.Prepare();
    CURL* const handle = transfer->transfer.handle();
    curl_multi_add_handle(multi_.get(), handle);
    transfers_.emplace(handle, std::move(transfer));
    ++job->num_transfers;
    ++num_transfers_;
  }
}

void PictureFetcher::FinishTransfer(CURL* handle, CURLcode code) {
  const auto found = transfers_.find(handle);
  curl_multi_remove_handle(multi_.get(), handle);
  Transfer& ended = *found->second;
  const absl::StatusOr<bool> redirected = ended.transfer.Finish(code);
  if (redirected.ok() && *redirected) {
    ended.transfer.Prepare();
    curl_multi_add_handle(multi_.get(), handle);
    return;
  }
  if (options_.on_fetched) options_.on_fetched(ended.begin);
  const std::shared_ptr<Job> job = ended.job;
  const size_t file = ended.file;
  if (job->asked.times != nullptr) {
    job->asked.times->push_back({.stage = PictureStage::kFetch,
                                 .picture = static_cast<uint32_t>(file),
                                 .begin = ended.begin,
                                 .end = absl::Now()});
  }
  bool fits = true;
  if (redirected.ok()) {
    const std::string& url = (*job->asked.urls)[file];
    std::string& body = job->fetched[url] = ended.transfer.TakeBody();
    // Each time that the URL is there the request has another copy.
    const auto more = static_cast<uint64_t>(std::ranges::count(*job->asked.urls, url) - 1);
    fits = more * body.size() <= job->room;
    job->room -= fits ? more * body.size() : 0;
  }
  transfers_.erase(found);
  --num_transfers_;
  --job->num_transfers;
  if (!fits) {
    return Answer(job, absl::InvalidArgumentError(absl::StrFormat(
                           "images[%d]: it is in the request too often: the pictures have more "
                           "than %d bytes together",
                           file, options_.max_job_bytes)));
  }
  if (!redirected.ok()) {
    return Answer(job, absl::InvalidArgumentError(absl::StrFormat(
                           "images[%d]: %s", file, std::string(redirected.status().message()))));
  }
  if (--job->num_left == 0) Answer(job, FilesOf(*job));
}

absl::StatusOr<FetchJob::Strings> PictureFetcher::FilesOf(Job& job) const {
  const std::vector<std::string>& urls = *job.asked.urls;
  auto files = std::make_shared<std::vector<std::string>>(*job.asked.files);
  for (size_t i = 0; i < urls.size(); ++i) {
    if (!urls[i].empty()) (*files)[i] = job.fetched[urls[i]];
  }
  return FetchJob::Strings(std::move(files));
}

void PictureFetcher::Answer(const std::shared_ptr<Job>& job,
                            absl::StatusOr<FetchJob::Strings> files) {
  {
    MutexLock lock(mutex_);
    if (open_.erase(job->ticket) == 0) return;
    running_.remove(job);
    waiting_.remove(job);
  }
  if (!files.ok() && options_.on_failed) options_.on_failed(files.status());
  job->done(std::move(files));
}

}  // namespace tandem::gateway

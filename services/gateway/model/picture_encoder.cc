#include "services/gateway/model/picture_encoder.h"

#include <openssl/sha.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/picture/pan_and_scan.h"
#include "services/common/picture/prepare.h"

namespace tandem::gateway {
namespace {

constexpr char kTooManyWait[] = "too many pictures wait to be decoded; try again later";

uint64_t BytesOf(const PictureViews& views) {
  uint64_t bytes = 0;
  for (const auto& view : views) bytes += view->soft_tokens.size() * sizeof(float);
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PictureEncoder>> PictureEncoder::Create(
    PictureEncoderOptions options, const VisionConfig& config, Encode encode) {
  TANDEM_ASSIGN_OR_RETURN(auto decoder, PictureDecoder::Create(options.decoder));
  std::unique_ptr<PictureEncoder> encoder(
      new PictureEncoder(std::move(options), config, std::move(encode), std::move(decoder)));
  TANDEM_RETURN_IF_ERROR(encoder->StartFetcher());
  return encoder;
}

absl::Status PictureEncoder::StartFetcher() {
  if (options_.fetcher.hosts.empty()) return absl::OkStatus();
  PictureFetcherOptions options = options_.fetcher;
  options.limits.max_file_bytes = options_.decoder.max_file_bytes;
  options.on_fetched = [this](absl::Time begin) { ReportStage(PictureStage::kFetch, begin); };
  options.on_failed = [this](const absl::Status& status) { ReportError(status); };
  TANDEM_ASSIGN_OR_RETURN(fetcher_, PictureFetcher::Create(std::move(options)));
  return absl::OkStatus();
}

PictureEncoder::PictureEncoder(PictureEncoderOptions options, const VisionConfig& config,
                               Encode encode, std::unique_ptr<PictureDecoder> decoder)
    : options_(std::move(options)),
      config_(config),
      encode_(std::move(encode)),
      decoder_(std::move(decoder)) {
  for (uint32_t i = 0; i < options_.decoder.max_decoders; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

PictureEncoder::~PictureEncoder() {
  Stop(absl::UnavailableError("the gateway is shutting down"));
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void PictureEncoder::MakeKeys(Job& job) {
  for (const std::string& file : *job.asked.files) {
    Key& key = job.keys.emplace_back(Key{.scope = job.asked.scope});
    ::SHA256(reinterpret_cast<const unsigned char*>(file.data()), file.size(), key.digest.data());
  }
}

PictureEncoder::Ticket PictureEncoder::Get(PictureJob asked,
                                           std::function<void(absl::StatusOr<Pictures>)> done) {
  auto job = std::make_shared<Job>();
  for (const std::string& file : *asked.files) job->num_bytes += file.size();
  job->pictures.resize(asked.files->size());
  job->asked = std::move(asked);
  job->done = std::move(done);
  if (!job->asked.look_later) MakeKeys(*job);
  absl::Status room;
  Ticket ticket = kNoTicket;
  ptrdiff_t num_found = 0;
  {
    MutexLock lock(mutex_);
    if (!job->keys.empty()) Find(*job);
    num_found =
        std::ssize(job->pictures) - std::ranges::count_if(job->pictures, &PictureViews::empty);
    if (num_found < std::ssize(job->pictures)) {
      room = CheckRoom(*job);
      if (room.ok()) {
        ticket = job->ticket = ++last_ticket_;
        open_.emplace(ticket, job);
        PutInTurn(job);
      }
    }
  }
  if (!room.ok()) {
    job->done(room);
    return kNoTicket;
  }
  Report(PictureOutcome::kCached, static_cast<size_t>(num_found));
  if (ticket == kNoTicket) job->done(std::move(job->pictures));
  return ticket;
}

void PictureEncoder::PutInTurn(const std::shared_ptr<Job>& job) {
  job->waits = true;
  CountWaiting(*job, /*more=*/true);
  waiting_.Push(job->asked.sender, job);
  changed_.SignalOne();
}

absl::Status PictureEncoder::CheckRoom(const Job& job) const {
  if (!stopped_.ok()) return stopped_;
  const auto found = waiting_of_.find(job.asked.sender);
  const Waiting own = found == waiting_of_.end() ? Waiting() : found->second;
  const auto fits = [&](const Waiting& waiting, uint32_t max_jobs, uint64_t max_bytes) {
    // One job always fits, so that no request is too long for an idle gateway.
    return waiting.jobs == 0 ||
           (waiting.jobs < max_jobs && waiting.bytes + job.num_bytes <= max_bytes);
  };
  if (fits(waiting_of_all_, options_.max_jobs, options_.max_bytes) &&
      fits(own, options_.max_jobs_per_sender, options_.max_bytes_per_sender)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(kTooManyWait);
}

void PictureEncoder::CountWaiting(const Job& job, bool more) {
  Waiting& own = waiting_of_[job.asked.sender];
  for (Waiting* waiting : {&waiting_of_all_, &own}) {
    if (more) {
      ++waiting->jobs;
      waiting->bytes += job.num_bytes;
    } else {
      --waiting->jobs;
      waiting->bytes -= job.num_bytes;
    }
  }
  if (own.jobs == 0) waiting_of_.erase(job.asked.sender);
}

bool PictureEncoder::TakeAnswer(Ticket ticket) { return open_.erase(ticket) > 0; }

void PictureEncoder::Cancel(Ticket ticket) {
  std::shared_ptr<Job> job;
  {
    MutexLock lock(mutex_);
    const auto found = open_.find(ticket);
    if (found == open_.end()) return;
    job = found->second;
    open_.erase(found);
    if (job->waits) {  // nobody looks at its files any more
      CountWaiting(*job, /*more=*/false);
      job->waits = false;
      job->asked.files = nullptr;
    }
  }
  job->done(absl::CancelledError("the client has gone"));
}

void PictureEncoder::Stop(const absl::Status& why) {
  if (fetcher_ != nullptr) fetcher_->Stop(why);
  std::map<Ticket, std::shared_ptr<Job>> open;
  {
    MutexLock lock(mutex_);
    if (stopped_.ok()) stopped_ = why;
    open.swap(open_);
    cached_.clear();
    by_key_.clear();
    cached_bytes_ = 0;
  }
  for (const auto& [ticket, job] : open) job->done(why);
}

std::shared_ptr<PictureEncoder::Job> PictureEncoder::TakeInTurn() {
  MutexLock lock(mutex_);
  while (true) {
    while (!ends_ && waiting_.empty()) changed_.Wait(mutex_);
    if (ends_) return nullptr;
    std::shared_ptr<Job> job = waiting_.Pop();
    if (!job->waits) continue;  // cancelled
    CountWaiting(*job, /*more=*/false);
    job->waits = false;
    if (open_.contains(job->ticket)) return job;
  }
}

void PictureEncoder::Run() {
  while (const std::shared_ptr<Job> job = TakeInTurn()) {
    const absl::StatusOr<bool> done = Work(*job);
    {
      MutexLock lock(mutex_);
      if (done.ok() && !*done && open_.contains(job->ticket)) {
        PutInTurn(job);
        continue;
      }
      if (!TakeAnswer(job->ticket)) continue;
    }
    if (done.ok()) {
      job->done(std::move(job->pictures));
    } else {
      ReportError(done.status());
      job->done(done.status());
    }
  }
}

void PictureEncoder::Find(Job& job) {
  for (size_t i = 0; i < job.keys.size(); ++i) {
    if (!job.pictures[i].empty()) continue;
    const auto found = by_key_.find(job.keys[i]);
    if (found == by_key_.end()) continue;
    cached_.splice(cached_.begin(), cached_, found->second);
    job.pictures[i] = found->second->views;
  }
}

absl::StatusOr<PictureEncoder::Prepared> PictureEncoder::Prepare(const Job& job, size_t i) {
  if (absl::Now() >= job.asked.deadline) {
    return absl::DeadlineExceededError("the deadline passed while pictures were decoded");
  }
  {
    MutexLock lock(mutex_);
    if (!open_.contains(job.ticket)) return absl::CancelledError("nobody waits");
  }
  const auto place = static_cast<uint32_t>(i);
  absl::Time begin = absl::Now();
  const auto decoded = decoder_->Decode(job.asked.sender, (*job.asked.files)[i]);
  ReportStage(job, {.stage = PictureStage::kDecode, .picture = place, .begin = begin});
  if (absl::IsInvalidArgument(decoded.status())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("images[%d]: %s", i, std::string(decoded.status().message())));
  }
  TANDEM_RETURN_IF_ERROR(decoded.status());
  begin = absl::Now();
  const PictureView whole = {decoded->width(), decoded->height(), decoded->pixels()};
  Prepared prepared = {.file = i};
  prepared.views.push_back(PreparePicture(whole, config_));
  if (options_.pan_and_scan) {
    for (const CropRect& crop : PanAndScan(whole.width, whole.height)) {
      const std::vector<uint8_t> pixels = CropPixels(whole, crop);
      prepared.views.push_back(PreparePicture({crop.width, crop.height, pixels}, config_));
    }
  }
  ReportStage(job, {.stage = PictureStage::kPrepare, .picture = place, .begin = begin});
  return prepared;
}

absl::StatusOr<bool> PictureEncoder::Work(Job& job) {
  if (job.keys.empty()) MakeKeys(job);
  TANDEM_RETURN_IF_ERROR(WorkBatch(job));
  return std::ranges::none_of(job.pictures, &PictureViews::empty);
}

absl::Status PictureEncoder::WorkBatch(Job& job) {
  const auto num_missing = [&] {
    return std::ranges::count_if(job.pictures, &PictureViews::empty);
  };
  const auto before = num_missing();
  {
    MutexLock lock(mutex_);
    Find(job);
  }
  std::vector<Prepared> prepared;
  size_t num_views = 0;
  for (size_t i = 0; i < job.keys.size() && num_views < options_.batch_pictures; ++i) {
    const auto same = [&](const Prepared& other) { return job.keys[other.file] == job.keys[i]; };
    if (!job.pictures[i].empty() || std::ranges::any_of(prepared, same)) continue;
    TANDEM_ASSIGN_OR_RETURN(prepared.emplace_back(), Prepare(job, i));
    num_views += prepared.back().views.size();
  }
  absl::Status encoded = absl::OkStatus();
  {
    MutexLock encoding(encode_mutex_);
    {
      // Another job may have been faster.
      MutexLock lock(mutex_);
      Find(job);
    }
    std::erase_if(prepared, [&](const Prepared& file) { return !job.pictures[file.file].empty(); });
    encoded = EncodeBatch(job, prepared);
  }
  TANDEM_RETURN_IF_ERROR(encoded);
  // The same file again.
  for (size_t i = 0; i < job.keys.size(); ++i) {
    if (!job.pictures[i].empty()) continue;
    const auto same = std::ranges::find_if(
        prepared, [&](const Prepared& other) { return job.keys[other.file] == job.keys[i]; });
    if (same != prepared.end()) job.pictures[i] = job.pictures[same->file];
  }
  Report(PictureOutcome::kCached, static_cast<size_t>(before - num_missing()) - prepared.size());
  return absl::OkStatus();
}

absl::Status PictureEncoder::EncodeBatch(Job& job, std::vector<Prepared>& prepared) {
  if (prepared.empty()) return absl::OkStatus();
  std::vector<std::vector<float>> pixels;
  for (Prepared& file : prepared) std::ranges::move(file.views, std::back_inserter(pixels));
  const absl::Time begin = absl::Now();
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::vector<float>> encoded, encode_(pixels));
  ReportStage(job, {.stage = PictureStage::kEncode,
                    .picture = static_cast<uint32_t>(prepared[0].file),
                    .num_pictures = static_cast<uint32_t>(prepared.size()),
                    .begin = begin});
  Report(PictureOutcome::kEncoded, prepared.size());
  MutexLock lock(mutex_);
  std::span<std::vector<float>> left = encoded;
  for (const Prepared& file : prepared) {
    TANDEM_RETURN_IF_ERROR(
        Insert(job.keys[file.file], left.first(file.views.size()), job.pictures[file.file]));
    left = left.subspan(file.views.size());
  }
  return absl::OkStatus();
}

absl::Status PictureEncoder::Insert(const Key& key, std::span<std::vector<float>> soft_tokens,
                                    PictureViews& views) {
  if (num_keys_ > kMostPictureKeys - soft_tokens.size()) {
    return absl::ResourceExhaustedError("this gateway has encoded 2^31 pictures: restart it");
  }
  views.clear();
  for (std::vector<float>& of_view : soft_tokens) {
    views.push_back(std::make_shared<Picture>(
        Picture{.key = kFirstPictureKey + num_keys_++, .soft_tokens = std::move(of_view)}));
  }
  cached_.push_front({key, views});
  by_key_[key] = cached_.begin();
  cached_bytes_ += BytesOf(views);
  while (cached_bytes_ > options_.max_cached_bytes) {
    cached_bytes_ -= BytesOf(cached_.back().views);
    by_key_.erase(cached_.back().key);
    cached_.pop_back();
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway

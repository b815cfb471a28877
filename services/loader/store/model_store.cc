#include "services/loader/store/model_store.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/quantization.h"
#include "services/loader/vision/seeing_model.h"

namespace tandem::loader {

absl::StatusOr<std::unique_ptr<ModelStore>> ModelStore::Create(Options options,
                                                               std::shared_ptr<KeptWeights> kept) {
  TANDEM_ASSIGN_OR_RETURN(ModelCatalog catalog,
                          ModelCatalog::Create(options.roots, options.vision));
  std::unique_ptr<ModelStore> store(
      new ModelStore(std::move(options), std::move(catalog), std::move(kept)));
  if (store->kept_ == nullptr) return store;
  for (KeptModel& model : store->kept_->TakeInherited()) {
    const std::string content_id = model.packed.content_id;
    const absl::Status adopted = store->Adopt(std::move(model));
    if (adopted.ok()) continue;
    LogWarning("weights kept by the service manager are dropped",
               {{"model_id", content_id}, {"reason", std::string(adopted.message())}});
    store->kept_->Drop(content_id);
  }
  return store;
}

ModelStore::~ModelStore() {
  if (kept_ != nullptr) kept_->LetGo();
}

absl::StatusOr<std::shared_ptr<const ResidentModel>> ModelStore::Load(
    const std::string& name, const std::function<bool(const PackProgress&)>& progress) {
  TANDEM_ASSIGN_OR_RETURN(const ModelFile file, catalog_.Resolve(name));
  absl::MutexLock load_lock(&load_mutex_);
  if (progress && !progress({absl::StrFormat("reading %s", file.name), 0, 0})) {
    return absl::CancelledError("loading was stopped");
  }
  // Before the files are read: a change that comes meanwhile is one.
  TANDEM_ASSIGN_OR_RETURN(const std::string stamp, ModelCatalog::FileStamp(file));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> source,
                          OpenSeeingModel(file.path, file.vision));
  for (const std::string& warning : source->warnings()) {
    LogWarning("model file", {{"path", file.path}, {"warning", warning}});
  }
  if (auto resident = Find(source->content_id()); resident.ok()) {
    absl::MutexLock lock(&mutex_);
    last_ = *resident;
    std::erase(adopted_, *resident);
    return resident;
  }
  auto packed = Pack(file, stamp, *source, progress);
  if (absl::IsResourceExhausted(packed.status()) && DropIdleModel()) {
    packed = Pack(file, stamp, *source, progress);
  }
  if (!packed.ok()) return packed.status();
  // What falls idle by this is freed after the lock.
  std::shared_ptr<const ResidentModel> previous = *packed;
  std::vector<std::shared_ptr<const ResidentModel>> adopted;
  absl::MutexLock lock(&mutex_);
  adopted_.swap(adopted);
  std::erase_if(models_, [](const auto& entry) { return entry.second.expired(); });
  models_[(*packed)->model_id] = *packed;
  last_.swap(previous);
  return packed;
}

ModelStore::ModelStore(Options options, ModelCatalog catalog, std::shared_ptr<KeptWeights> kept)
    : options_(std::move(options)),
      catalog_(std::move(catalog)),
      kept_(std::move(kept)),
      leases_(options_.leases) {
  if (options_.packed_cache.folder.empty()) return;
  auto cache = PackedCache::Create(options_.packed_cache);
  if (!cache.ok()) {
    LogWarning("packed weights are not kept", {{"reason", std::string(cache.status().message())}});
    return;
  }
  cache_ = *std::move(cache);
  writer_ = std::make_unique<PackedCacheWriter>(*cache_);
  const PackedCache::Contents contents = cache_->contents();
  LogInfo("packed cache", {{"folder", cache_->folder()},
                           {"files", contents.num_files},
                           {"bytes", contents.bytes},
                           {"limit", options_.packed_cache.max_bytes}});
}

void ModelStore::WaitForCache() {
  if (writer_ != nullptr) writer_->Wait();
}

absl::StatusOr<PackedModel> ModelStore::ReadOrPack(
    const ModelSource& source, const PackedName* name, PackingPlan plan,
    const std::function<bool(const PackProgress&)>& progress, bool& from_cache) {
  from_cache = false;
  if (name == nullptr) return PackModel(source, std::move(plan), options_.packing, progress);
  auto packed = cache_->Read(*name, plan, options_.packing.num_threads, progress);
  if (packed.ok() || absl::IsCancelled(packed.status()) ||
      absl::IsResourceExhausted(packed.status())) {
    from_cache = packed.ok();
    return packed;
  }
  if (!absl::IsNotFound(packed.status())) {
    LogWarning("packed weights cannot be used, packing again",
               {{"reason", std::string(packed.status().message())}});
  }
  return PackModel(source, std::move(plan), options_.packing, progress);
}

void ModelStore::KeepInCache(const PackedName& name, const ResidentModel& model) {
  PackedCacheWriter::Job job{.name = name};
  for (const SealedRegion& region : model.regions) {
    absl::StatusOr<Region> copy = Duplicate(region.fd, region.bytes);
    if (!copy.ok()) return;  // out of descriptors: there is worse to log than this
    job.regions.emplace_back(std::move(copy->fd), region.bytes);
  }
  writer_->Post(std::move(job));
}

absl::StatusOr<std::shared_ptr<const ResidentModel>> ModelStore::Pack(
    const ModelFile& file, const std::string& stamp, const ModelSource& source,
    const std::function<bool(const PackProgress&)>& progress) {
  TANDEM_ASSIGN_OR_RETURN(PackingPlan plan, PlanPacking(source.tensors(), source.config(),
                                                        options_.packing.max_region_bytes));
  const PackedName name = NameOf(source.content_id(), plan);
  const bool cached = cache_ != nullptr && source.format() != "synthetic" &&
                      plan.source_bytes >= options_.min_cached_bytes;
  const std::shared_ptr<ResidentModel> model = Describe(file, stamp, source);
  const absl::Time start = absl::Now();
  bool from_cache = false;
  TANDEM_ASSIGN_OR_RETURN(PackedModel packed, ReadOrPack(source, cached ? &name : nullptr,
                                                         std::move(plan), progress, from_cache));
  for (PackedRegion& region : packed.regions) {
    TANDEM_ASSIGN_OR_RETURN(SealedRegion sealed, SealRegion(std::move(region)));
    model->weight_bytes += sealed.bytes;
    model->regions.push_back(std::move(sealed));
  }
  model->tensors = std::move(packed.tensors);
  model->source_bytes = packed.source_bytes;
  model->load_seconds = absl::ToDoubleSeconds(absl::Now() - start);
  LogResident(*model, from_cache ? "packed cache" : "files");
  if (kept_ != nullptr) {
    const absl::Status kept = kept_->Keep(file.name, name, model->regions);
    if (kept.ok()) {
      model->hold = std::make_unique<KeptHold>(kept_, model->model_id);
    } else {
      LogWarning("the weights will not outlive this loader",
                 {{"reason", std::string(kept.message())}});
    }
  }
  if (cached && !from_cache) KeepInCache(name, *model);
  return model;
}

std::shared_ptr<ResidentModel> ModelStore::Describe(const ModelFile& file, const std::string& stamp,
                                                    const ModelSource& source) {
  auto model = std::make_shared<ResidentModel>();
  model->model_id = source.content_id();
  model->name = file.name;
  model->path = file.path;
  model->file_stamp = stamp;
  model->config = source.config();
  model->vocabulary = source.vocabulary();
  model->chat_template = source.chat_template();
  model->sampling_defaults = source.sampling_defaults();
  model->quantization = QuantizationOf(source);
  return model;
}

absl::Status ModelStore::Adopt(KeptModel kept) {
  const absl::Time start = absl::Now();
  TANDEM_ASSIGN_OR_RETURN(const ModelFile file, catalog_.Resolve(kept.name));
  TANDEM_ASSIGN_OR_RETURN(const std::string stamp, ModelCatalog::FileStamp(file));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> source,
                          OpenSeeingModel(file.path, file.vision));
  if (source->content_id() != kept.packed.content_id) {
    return absl::DataLossError(
        absl::StrFormat("%s is another model now, of id %s", file.path, source->content_id()));
  }
  TANDEM_ASSIGN_OR_RETURN(const PackingPlan plan, PlanPacking(source->tensors(), source->config(),
                                                              options_.packing.max_region_bytes));
  if (NameOf(source->content_id(), plan).key != kept.packed.key ||
      kept.regions.size() != plan.region_bytes.size()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("this loader packs %s in another layout", kept.name));
  }
  const std::shared_ptr<ResidentModel> model = Describe(file, stamp, *source);
  for (size_t i = 0; i < kept.regions.size(); ++i) {
    if (kept.regions[i].bytes != plan.region_bytes[i]) {
      return absl::DataLossError(absl::StrFormat("region %d of %s has %d bytes, wanted %d", i,
                                                 kept.name, kept.regions[i].bytes,
                                                 plan.region_bytes[i]));
    }
    model->weight_bytes += kept.regions[i].bytes;
  }
  model->regions = std::move(kept.regions);
  for (const PlannedTensor& planned : plan.tensors) model->tensors.push_back(planned.tensor);
  model->source_bytes = plan.source_bytes;
  model->load_seconds = absl::ToDoubleSeconds(absl::Now() - start);
  model->hold = std::make_unique<KeptHold>(kept_, model->model_id);
  LogResident(*model, "service manager");
  absl::MutexLock lock(&mutex_);
  models_[model->model_id] = model;
  adopted_.push_back(model);
  return absl::OkStatus();
}

void ModelStore::LogResident(const ResidentModel& model, const std::string& from) const {
  LogInfo("model resident",
          {{"model", model.name},
           {"model_id", model.model_id},
           {"weight_bytes", model.weight_bytes},
           {"regions", model.regions.size()},
           {"dmabuf", !model.regions.empty() && model.regions[0].dmabuf_fd.valid() ? "yes" : "no"},
           {"from", from},
           {"seconds", LogValue(model.load_seconds, 3)}});
}

bool ModelStore::DropIdleModel() {
  if (writer_ != nullptr) writer_->Cancel();  // it holds the memory too
  std::vector<std::shared_ptr<const ResidentModel>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    const auto take_if_idle = [&dropped](std::shared_ptr<const ResidentModel>& model) {
      if (model == nullptr || model.use_count() > 1) return;
      LogInfo("idle model dropped to make room", {{"model", model->name}});
      dropped.push_back(std::move(model));
    };
    for (auto& model : adopted_) take_if_idle(model);
    std::erase(adopted_, nullptr);
    take_if_idle(last_);
  }
  if (dropped.empty()) return false;
  dropped.clear();
  if (kept_ != nullptr) kept_->Settle();
  return true;
}

absl::StatusOr<std::shared_ptr<const ResidentModel>> ModelStore::Find(
    const std::string& model_id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = models_.find(model_id);
  if (found != models_.end()) {
    if (auto model = found->second.lock()) return model;
  }
  return absl::NotFoundError(
      absl::StrFormat("model id '%s' is not resident; load it first", model_id.substr(0, 64)));
}

bool ModelStore::IsResident(const std::string& path) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, entry] : models_) {
    const auto model = entry.lock();
    if (model != nullptr && model->path == path) return true;
  }
  return false;
}

absl::StatusOr<LeaseGrant> ModelStore::Acquire(const std::string& model_id,
                                               const std::string& holder) {
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const ResidentModel> model, Find(model_id));
  return leases_.Grant(std::move(model), holder);
}

StoreStatus ModelStore::GetStatus() const {
  StoreStatus status{.leases = leases_.GetStatus()};
  std::map<std::string, uint32_t> leases_of;
  for (const LeaseStatus& lease : status.leases) {
    ++leases_of[lease.model_id];
    status.exchange_bytes += lease.exchange_bytes;
    status.num_regions += lease.num_regions;
  }
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, entry] : models_) {
    const auto model = entry.lock();
    if (model == nullptr) continue;
    status.models.push_back({id, model->name, model->weight_bytes, leases_of[id]});
    status.weight_bytes += model->weight_bytes;
    status.num_regions += static_cast<uint32_t>(model->regions.size());
  }
  return status;
}

}  // namespace tandem::loader

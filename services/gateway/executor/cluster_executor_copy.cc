// ClusterExecutor: copies of KV blocks.
#include <chrono>
#include <utility>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/inline_kv.h"
#include "services/gateway/executor/cluster_executor.h"

namespace tandem::gateway {
namespace {

// Numbers of copies, beyond those of steps: no answer fits two calls.
constexpr uint64_t kFirstCopy = uint64_t{1} << 63;

}  // namespace

void ClusterExecutor::FindKvCopiers() {
  kv_layout_ = KvCopyLayout(config(), limits_);
  kv_copiers_.clear();
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    KvCopier copier{.layers = std::vector<bool>(config().num_layers)};
    for (const Segment& segment : plan_.segments) {
      if (segment.worker != worker) continue;
      const std::vector<bool> layers = AttendedLayers({&segment, 1}, config().num_layers);
      for (uint32_t layer_idx = 0; layer_idx < layers.size(); ++layer_idx) {
        if (!layers[layer_idx]) continue;
        copier.layers[layer_idx] = true;
        if (copier.segment == nullptr) copier.segment = &segment;
      }
    }
    if (copier.segment != nullptr) kv_copiers_.push_back(std::move(copier));
  }
}

const worker::v1::ExecuteRequest& ClusterExecutor::CopyRequest(const KvCopy& copy,
                                                               const KvCopier& copier) {
  request_.Clear();
  request_.set_epoch(epoch_);
  request_.set_step_id(kFirstCopy + num_copies_);
  request_.set_segment_index(copier.segment->index);
  FillProto(copy, *request_.mutable_kv_copy());
  if (workers_[copier.segment->worker]->client->remote()) {
    std::string& bytes = *request_.mutable_inputs()->mutable_kv();
    if (copy.write) PutKv(*exchange_, kv_layout_, copy, copier.layers, bytes);
  }
  return request_;
}

absl::Status ClusterExecutor::TakeCopied(const KvCopy& copy, const KvCopier& copier) {
  const uint32_t worker = copier.segment->worker;
  const auto response = workers_[worker]->client->Wait(options_.segment_deadline);
  last_answer_[worker] = std::chrono::steady_clock::now();
  absl::Status status = response.status();
  if (status.ok() && !copy.write && workers_[worker]->client->remote()) {
    status = TakeKv((*response)->outputs().kv(), kv_layout_, copy, copier.layers, *exchange_);
    if (!status.ok()) {
      // It is not trusted until it has loaded again, as after an answer that does not fit its step.
      status =
          absl::UnavailableError("its answer makes no sense: " + std::string(status.message()));
    }
  }
  return status.ok() ? status : CallFailed(*copier.segment, status);
}

absl::Status ClusterExecutor::CopyKv(const KvCopy& copy) {
  TANDEM_CHECK(under_way_.empty());
  TANDEM_RETURN_IF_ERROR(lost_);
  ++num_copies_;
  absl::Status status = kv_layout_.Check(copy);
  size_t num_sent = 0;
  for (const KvCopier& copier : kv_copiers_) {
    if (!status.ok()) break;
    status = workers_[copier.segment->worker]->client->Submit(CopyRequest(copy, copier),
                                                              options_.segment_deadline);
    if (status.ok()) {
      ++num_sent;
    } else {
      status = CallFailed(*copier.segment, status);
    }
  }
  for (size_t i = 0; i < num_sent && lost_.ok(); ++i)
    status.Update(TakeCopied(copy, kv_copiers_[i]));
  return lost_.ok() ? status : lost_;
}

}  // namespace tandem::gateway

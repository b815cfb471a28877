// ClusterExecutor: copies of KV blocks.
#include <algorithm>
#include <chrono>
#include <iterator>
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
    std::vector<Segment> own;
    std::ranges::copy_if(plan_.segments, std::back_inserter(own),
                         [worker](const Segment& segment) { return segment.worker == worker; });
    std::vector<bool> layers = AttendedLayers(own, config().num_layers);
    if (std::ranges::count(layers, true) == 0) continue;
    kv_copiers_.push_back(
        {.segment = &plan_.segments[own.front().index], .layers = std::move(layers)});
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
  const auto response = workers_[worker]->client->Wait(DeadlineOf(worker));
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
                                                              DeadlineOf(copier.segment->worker));
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

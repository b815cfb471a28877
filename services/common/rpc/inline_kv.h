// Copies of KV blocks (step/kv_copy.h) in messages: between a gateway and a worker on another host,
// which have an exchange region each.
//
// A message has the bytes of the layers whose Attend the worker runs, in the order of the area.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/common/plan/stage.h"
#include "services/common/step/kv_copy.h"
#include "services/common/worker/worker.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

void FillProto(const KvCopy& copy, worker::v1::KvCopy& proto);
// Borrows the blocks.
KvCopy FromProto(const worker::v1::KvCopy& proto);

// By layer: whether one of the segments runs its Attend.
std::vector<bool> AttendedLayers(std::span<const Segment> segments, uint32_t num_layers);

// REQUIRES a copy that KvCopyLayout::Check has allowed.
void PutKv(const Exchange& exchange, const KvCopyLayout& layout, const KvCopy& copy,
           const std::vector<bool>& layers, std::string& bytes);
// INVALID_ARGUMENT: more or fewer bytes than the copy has; nothing has been written then.
// REQUIRES as PutKv.
absl::Status TakeKv(const std::string& bytes, const KvCopyLayout& layout, const KvCopy& copy,
                    const std::vector<bool>& layers, const Exchange& exchange);

}  // namespace tandem

#include "services/npu_worker/emulator/driver/client.h"

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::npu::emulator {
namespace {

// A buffer as the packet in it.
std::span<const uint32_t> Words(const ClientBuffer& buffer) {
  return {reinterpret_cast<const uint32_t*>(buffer.host), buffer.bytes / sizeof(uint32_t)};
}

}  // namespace

DriverClient::DriverClient(DriverDevice& device)
    : device_(device), buffers_(device.profile(), space_) {}

DriverClient::~DriverClient() {
  std::map<uint32_t, std::shared_ptr<Context>> contexts;
  {
    const MutexLock lock(mutex_);
    contexts.swap(contexts_);
  }
  for (auto& [handle, context] : contexts) Release(*context);
}

Errno DriverClient::CreateContext(uint32_t num_tiles, uint32_t* handle) {
  if (!buffers_.has_heap()) return Refuse(ENOENT, "a context before the heap");
  auto context = std::make_shared<Context>();
  Errno error = 0;
  for (uint32_t i = 0; i < kCommandsInFlight && error == 0; ++i) {
    uint32_t buffer = 0;
    error = buffers_.Create(BufferKind::kDevice, kChainBytes, &buffer);
    if (error == 0) context->command_buffers.push_back(buffer);
  }
  context->num_columns = num_tiles / kCoreRows;
  if (error == 0) error = device_.AcquireColumns(context->num_columns, &context->first_column);
  if (error != 0) {
    for (const uint32_t buffer : context->command_buffers) (void)buffers_.Close(buffer);
    return error;
  }
  context->queue =
      std::make_unique<CommandQueue>(space_, device_.MakeHandler({}, context->num_columns),
                                     device_.faults(), device_.profile().recovery_after);
  const MutexLock lock(mutex_);
  *handle = next_context_++;
  contexts_.emplace(*handle, std::move(context));
  return 0;
}

void DriverClient::Release(Context& context) {
  context.queue.reset();
  device_.ReleaseColumns(context.first_column, context.num_columns);
  for (const uint32_t buffer : context.command_buffers) (void)buffers_.Close(buffer);
}

Errno DriverClient::DestroyContext(uint32_t handle) {
  std::shared_ptr<Context> context;
  {
    const MutexLock lock(mutex_);
    const auto found = contexts_.find(handle);
    if (found == contexts_.end()) return Refuse(EINVAL, absl::StrFormat("no context %d", handle));
    context = std::move(found->second);
    contexts_.erase(found);
  }
  Release(*context);
  return 0;
}

std::shared_ptr<DriverClient::Context> DriverClient::Find(uint32_t handle) const {
  const MutexLock lock(mutex_);
  const auto found = contexts_.find(handle);
  return found == contexts_.end() ? nullptr : found->second;
}

Errno DriverClient::ConfigureContext(uint32_t handle, std::span<const uint32_t> configurations) {
  const std::shared_ptr<Context> context = Find(handle);
  if (context == nullptr) return Refuse(EINVAL, absl::StrFormat("no context %d", handle));
  if (configurations.empty() || configurations.size() > kMaxConfigurations ||
      !context->configurations.empty()) {
    return Refuse(EINVAL, absl::StrFormat("context %d: %d configurations after %d", handle,
                                          configurations.size(), context->configurations.size()));
  }
  std::vector<std::shared_ptr<ClientBuffer>> buffers;
  for (const uint32_t configuration : configurations) {
    buffers.push_back(buffers_.Find(configuration));
    if (buffers.back() == nullptr || buffers.back()->kind != BufferKind::kDevice) {
      return Refuse(EINVAL, absl::StrFormat("context %d: configuration %d is no device buffer",
                                            handle, configuration));
    }
  }
  // Kernels of one context share the array: each command has its own one's configuration.
  std::vector<std::span<const std::byte>> spans;
  for (const auto& buffer : buffers) spans.emplace_back(buffer->host, buffer->bytes);
  context->queue->SetHandler(device_.MakeHandler(spans, context->num_columns));
  context->configurations = std::move(buffers);
  return 0;
}

Errno DriverClient::MakeSubmission(uint32_t command, Submission* submission) const {
  submission->packet = buffers_.Find(command);
  const bool is_command =
      submission->packet != nullptr && (submission->packet->kind == BufferKind::kCommand ||
                                        submission->packet->kind == BufferKind::kShared);
  if (!is_command) return Refuse(EINVAL, absl::StrFormat("no command buffer %d", command));
  const std::span<const uint32_t> packet = Words(*submission->packet);
  if (OpcodeOf(packet[0]) != PacketOpcode::kChain) return 0;
  const auto handles = DecodeChain(packet);
  if (!handles.ok()) return Refuse(EINVAL, std::string(handles.status().message()));
  uint64_t bytes = 0;
  for (const uint32_t handle : *handles) {
    std::shared_ptr<ClientBuffer> buffer = buffers_.Find(handle);
    const uint64_t slot = buffer == nullptr ? 0 : ChainSlotBytes(Words(*buffer));
    bytes += slot;
    if (slot == 0 || bytes > kChainBytes) {
      return Refuse(EINVAL,
                    absl::StrFormat("chain of %d: command %d takes %d bytes, %d of %d in all",
                                    handles->size(), handle, slot, bytes, kChainBytes));
    }
    submission->commands.push_back(std::move(buffer));
  }
  return 0;
}

Errno DriverClient::Submit(uint32_t context_handle, uint32_t command,
                           std::span<const uint32_t> arguments, uint64_t* sequence) {
  const std::shared_ptr<Context> context = Find(context_handle);
  if (context == nullptr) return Refuse(EINVAL, absl::StrFormat("no context %d", context_handle));
  Submission submission;
  for (const uint32_t argument : arguments) {
    submission.arguments.push_back(buffers_.Find(argument));
    if (submission.arguments.back() == nullptr) {
      return Refuse(ENOENT, absl::StrFormat("no argument buffer %d", argument));
    }
  }
  if (const Errno error = MakeSubmission(command, &submission); error != 0) return error;
  if (device_.faults().RefusesNextSubmission()) {
    return Refuse(EINVAL, "a submission that is to be refused");
  }
  device_.CountSubmission();
  context->queue->Submit(std::move(submission), sequence);
  return 0;
}

Errno DriverClient::Wait(uint32_t context_handle, uint64_t sequence, absl::Time deadline) {
  const std::shared_ptr<Context> context = Find(context_handle);
  if (context == nullptr) return Refuse(EINVAL, absl::StrFormat("no context %d", context_handle));
  return context->queue->Wait(sequence, deadline);
}

std::vector<DriverClient::ContextInfo> DriverClient::contexts() const {
  const MutexLock lock(mutex_);
  std::vector<ContextInfo> infos;
  for (const auto& [handle, context] : contexts_) {
    infos.push_back(
        {handle, context->first_column, context->num_columns, context->queue->counts()});
  }
  return infos;
}

}  // namespace tandem::npu::emulator

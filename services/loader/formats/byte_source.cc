#include "services/loader/formats/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/loader/formats/printable.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kReaderBufferBytes = 64 << 10;
constexpr size_t kMaxMessageBytes = 1000;

absl::Status OutOfRange(uint64_t offset, uint64_t num_bytes, uint64_t size) {
  return absl::OutOfRangeError(
      absl::StrFormat("at byte %d: %d bytes asked, the file has %d", offset, num_bytes, size));
}

}  // namespace

absl::Status FormatError(uint64_t offset, std::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrFormat("at byte %d: %s", offset, Printable(reason, kMaxMessageBytes)));
}

absl::Status InFile(std::string_view name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrFormat("%s: %s", Printable(name, kMaxMessageBytes),
                                      Printable(MessageOf(status), kMaxMessageBytes)));
}

absl::Status SpanSource::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
    return OutOfRange(offset, out.size(), bytes_.size());
  }
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return absl::OkStatus();
}

absl::StatusOr<FileSource> FileSource::FromFd(UniqueFd fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return absl::ErrnoToStatus(errno, "cannot be examined");
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("is not a regular file");
  FileSource source;
  source.fd_ = std::move(fd);
  source.size_ = static_cast<uint64_t>(info.st_size);
  source.modified_ns_ = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return source;
}

absl::StatusOr<FileSource> FileSource::Open(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("the path is empty or holds a NUL character");
  }
  // O_NONBLOCK: opening a named pipe must not wait for its writer.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "cannot be opened");
  return FromFd(std::move(fd));
}

absl::Status FileSource::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) return OutOfRange(offset, out.size(), size_);
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno, absl::StrFormat("at byte %d: reading failed", offset));
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrFormat(
          "at byte %d: the file ends here; it had %d bytes when it was opened", offset, size_));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(const ByteSource& source, uint64_t max_bytes) {
  if (source.size() > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("has %d bytes, at most %d are accepted", source.size(), max_bytes));
  }
  std::string text(source.size(), '\0');
  TANDEM_RETURN_IF_ERROR(source.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

ByteReader::ByteReader(const ByteSource& source, uint64_t limit)
    : source_(source), limit_(std::min(limit, source.size())) {}

absl::Status ByteReader::ReadBytes(std::span<std::byte> out, std::string_view what) {
  if (out.size() > remaining()) {
    return FormatError(offset_, absl::StrFormat("%s: needs %d bytes, %d are left",
                                                std::string(what), out.size(), remaining()));
  }
  if (out.size() >= kReaderBufferBytes) {
    TANDEM_RETURN_IF_ERROR(source_.ReadAt(offset_, out));
    offset_ += out.size();
    return absl::OkStatus();
  }
  while (!out.empty()) {
    if (offset_ < buffer_start_ || offset_ >= buffer_start_ + buffer_.size()) {
      buffer_.resize(std::min(kReaderBufferBytes, remaining()));
      buffer_start_ = offset_;
      TANDEM_RETURN_IF_ERROR(source_.ReadAt(offset_, buffer_));
    }
    const uint64_t at = offset_ - buffer_start_;
    const uint64_t take = std::min<uint64_t>(out.size(), buffer_.size() - at);
    std::memcpy(out.data(), buffer_.data() + at, take);
    out = out.subspan(take);
    offset_ += take;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ByteReader::ReadString(uint64_t length, uint64_t max_length,
                                                   std::string_view what) {
  if (length > remaining()) {
    return FormatError(offset_, absl::StrFormat("%s: %d bytes long, %d are left", std::string(what),
                                                length, remaining()));
  }
  if (length > max_length) {
    return FormatError(offset_, absl::StrFormat("%s: %d bytes long, at most %d are accepted",
                                                std::string(what), length, max_length));
  }
  std::string text(length, '\0');
  TANDEM_RETURN_IF_ERROR(ReadBytes(std::as_writable_bytes(std::span(text)), what));
  return text;
}

}  // namespace tandem::loader

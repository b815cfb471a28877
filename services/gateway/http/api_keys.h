// API keys and their limits.
//
// A key file has one key per line; blank lines and lines that begin with '#' are ignored:
//
//   NAME sha256:HEX [requests=PER_MINUTE] [tokens=PER_MINUTE] [concurrency=N] [weight=N] [admin]
//
// `requests` and `concurrency` count sequences: each prompt, choice (n) and embedded input is one.
// `tokens` are reserved before a request runs, prompt and max_tokens of each sequence; unused
// tokens are given back.  `weight`: of the key's share of the device, by default 1.  `admin`: the
// key may see the traces of all requests and the usage of all keys, other keys only their own.
//
// HEX is the SHA-256 of the key (`printf %s "$KEY" | sha256sum`), so the file does not reveal keys.
// Keys must be random, with at least 128 bits: a fast hash does not protect a weak secret.  A limit
// that is absent is unlimited.  The file can be read again while requests run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

struct KeyLimits {
  std::optional<uint64_t> requests_per_minute;
  std::optional<uint64_t> tokens_per_minute;
  std::optional<uint64_t> concurrency;
  std::optional<uint64_t> weight;
  int32_t priority = 0;  // the lowest number that its requests may have
  bool admin = false;
};
inline constexpr uint64_t kMaxKeyWeight = 1000;
// Priorities lie between this and its negative.
inline constexpr int32_t kMaxPriority = 100;

// Usage of one key since the gateway's start.
struct KeyCounts {
  std::string name;       // as the file has it now
  uint64_t requests = 0;  // admitted, without those that only read
  uint64_t running = 0;   // requests that are being answered
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  // Refused, by the limit that was reached.
  uint64_t over_requests = 0;
  uint64_t over_tokens = 0;
  uint64_t over_concurrency = 0;

  // Adds all but the name.
  void Add(const KeyCounts& other);
};

class KeyAccount;

// An admitted request under a key.  Releases its place among the key's requests when destroyed.
class KeyLease {
 public:
  KeyLease(std::shared_ptr<KeyAccount> account, bool has_place)
      : account_(std::move(account)), has_place_(has_place) {}
  KeyLease(KeyLease&&) = default;
  KeyLease& operator=(KeyLease&&) = delete;
  ~KeyLease();
  std::shared_ptr<HttpClient> client() const;

 private:
  std::shared_ptr<KeyAccount> account_;  // shared with the table and other leases; null once moved
  bool has_place_;
};

// Thread-safe.
class ApiKeys {
 public:
  // NOT_FOUND: no such file; INVALID_ARGUMENT names the line.
  static absl::StatusOr<std::shared_ptr<ApiKeys>> Load(const std::string& path);
  static absl::StatusOr<std::shared_ptr<ApiKeys>> Parse(std::string_view text);

  struct Change {
    size_t num_kept = 0;
    size_t num_new = 0;
    size_t num_removed = 0;
  };
  // Replaces all keys by the current content of Load's file.  A key that stays, by its hash, keeps
  // its usage and running requests, even with another name or other limits; requests of a removed
  // key go on.  Errors as Load's; after an error nothing has changed.
  absl::StatusOr<Change> Reload();

  // Admits one request under `key`, or 401 (no such key) or 429 (over a limit, with the seconds
  // until it is not).  Takes the same time for every key, known or not.  With `counts` false the
  // request neither counts against the limits nor is refused by them.
  std::variant<KeyLease, HttpFailure> Admit(std::string_view key, absl::Time now,
                                            bool counts = true);

  // By key, in the order of the file.
  std::vector<KeyCounts> Usage() const;
  // Calls of Admit without a key or with one that is not in the file.
  uint64_t num_unknown() const { return num_unknown_.load(std::memory_order_relaxed); }

 private:
  using Accounts = std::vector<std::shared_ptr<KeyAccount>>;  // shared with leases
  static absl::StatusOr<Accounts> ParseAccounts(std::string_view text);
  absl::StatusOr<Change> Replace(std::string_view text);

  std::string path_;  // set by Load
  std::atomic<uint64_t> num_unknown_{0};
  mutable Mutex mutex_;
  // Shared with the calls of Admit under way.
  std::shared_ptr<const Accounts> accounts_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const Accounts>();
};

}  // namespace tandem::gateway

#include "services/gateway/http/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "services/common/base/mutex.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/error_details.h"

namespace tandem::gateway {

void KeyCounts::Add(const KeyCounts& other) {
  requests += other.requests;
  running += other.running;
  prompt_tokens += other.prompt_tokens;
  completion_tokens += other.completion_tokens;
  over_requests += other.over_requests;
  over_tokens += other.over_tokens;
  over_concurrency += other.over_concurrency;
}

using KeyDigest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

// A bucket that holds one minute's worth and fills evenly.  It may owe, for costs known only
// afterwards.
class RateBucket {
 public:
  // Its content stays, up to the new limit; without a limit before, it begins full.
  void SetLimit(std::optional<uint64_t> per_minute) {
    const double capacity = static_cast<double>(per_minute.value_or(0));
    level_ = per_minute_.has_value() ? std::min(level_, capacity) : capacity;
    per_minute_ = per_minute;
  }
  // Seconds until there is one to take; 0: now.
  double Wait(absl::Time now) {
    if (!per_minute_.has_value()) return 0.0;
    const double capacity = static_cast<double>(*per_minute_);
    level_ = std::min(
        capacity,
        level_ + absl::ToDoubleMinutes(std::max(now - filled_, absl::ZeroDuration())) * capacity);
    filled_ = std::max(filled_, now);
    return level_ >= 1.0 ? 0.0 : (1.0 - level_) * 60.0 / std::max(capacity, 1e-9);
  }
  void Take(double amount) { level_ -= amount; }
  // What was taken and not used; at most a minute's worth is there.
  void GiveBack(double amount) {
    level_ = std::min(level_ + amount, static_cast<double>(per_minute_.value_or(0)));
  }
  // As Wait, for `amount` of them.
  double WaitFor(uint64_t amount, absl::Time now) {
    Wait(now);  // fills it
    if (!per_minute_.has_value() || level_ >= static_cast<double>(amount)) return 0.0;
    return (static_cast<double>(amount) - level_) * 60.0 / static_cast<double>(*per_minute_);
  }
  // Whole ones that are there.
  std::optional<uint64_t> Left(absl::Time now) {
    Wait(now);
    if (!per_minute_.has_value()) return std::nullopt;
    return static_cast<uint64_t>(std::max(level_, 0.0));
  }

 private:
  std::optional<uint64_t> per_minute_;
  double level_ = 0.0;
  absl::Time filled_ = absl::InfinitePast();
};

namespace {

HttpFailure TooMany(const std::string& name, const char* what, uint64_t limit, double wait) {
  const absl::Status status = absl::ResourceExhaustedError(
      absl::StrFormat("API key '%s': its limit of %d %s is reached", name, limit, what));
  const double seconds = std::clamp(std::ceil(wait), 1.0, 86400.0);
  return {429, status, static_cast<int64_t>(seconds)};
}

// One request asks for more than there is under `limit` ("tokens").  INVALID_ARGUMENT: it always
// will, so waiting does not help.
absl::Status AsksTooMuch(const std::string& name, const char* limit, const char* what,
                         uint64_t asked, uint64_t allowed, uint64_t left, double wait) {
  const std::string text =
      absl::StrFormat("API key '%s': the request asks for %d %s, its limit %s=%d", name, asked,
                      what, limit, allowed);
  if (asked > allowed) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s never allows such a request: ask for less", text));
  }
  const absl::Duration retry = absl::Seconds(std::clamp(std::ceil(wait), 1.0, 86400.0));
  return WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrFormat("%s allows %d now; retry in %d s", text, left,
                                                   absl::ToInt64Seconds(retry))),
      retry);
}

}  // namespace

// What has been used under one key, whatever it is called in each version of the file.
// Thread-safe.
class KeyUsage {
 public:
  void SetLimits(const KeyLimits& limits) {
    MutexLock lock(mutex_);
    limits_ = limits;
    requests_.SetLimit(limits.requests_per_minute);
    tokens_.SetLimit(limits.tokens_per_minute);
  }
  void ChargeTokens(uint64_t prompt_tokens, uint64_t completion_tokens) {
    MutexLock lock(mutex_);
    counts_.prompt_tokens += prompt_tokens;
    counts_.completion_tokens += completion_tokens;
    tokens_.Take(static_cast<double>(prompt_tokens + completion_tokens));
  }
  // `name`: for the refusal.
  std::optional<HttpFailure> Enter(const std::string& name, absl::Time now) {
    MutexLock lock(mutex_);
    if (limits_.concurrency.has_value() && num_sequences_ >= *limits_.concurrency) {
      ++counts_.over_concurrency;
      return TooMany(name, "sequences at a time", *limits_.concurrency, 1.0);
    }
    if (const double wait = tokens_.Wait(now); wait > 0.0) {
      ++counts_.over_tokens;
      return TooMany(name, "tokens a minute", *limits_.tokens_per_minute, wait);
    }
    if (const double wait = requests_.Wait(now); wait > 0.0) {
      ++counts_.over_requests;
      return TooMany(name, "requests a minute", *limits_.requests_per_minute, wait);
    }
    requests_.Take(1.0);
    ++counts_.requests;
    ++counts_.running;
    ++num_sequences_;
    return std::nullopt;
  }
  void Leave() {
    MutexLock lock(mutex_);
    --counts_.running;
    --num_sequences_;
  }
  absl::Status Reserve(const std::string& name, const RequestCost& cost, absl::Time now) {
    MutexLock lock(mutex_);
    const uint64_t more = cost.sequences - 1, more_at_once = cost.at_once - 1;
    if (limits_.concurrency.has_value() && num_sequences_ + more_at_once > *limits_.concurrency) {
      ++counts_.over_concurrency;
      const uint64_t others = num_sequences_ - 1;
      return AsksTooMuch(name, "concurrency", "sequences at a time", cost.at_once,
                         *limits_.concurrency,
                         *limits_.concurrency > others ? *limits_.concurrency - others : 0, 1.0);
    }
    if (const double wait = requests_.WaitFor(more, now);
        more > 0 &&
        (wait > 0.0 || cost.sequences > limits_.requests_per_minute.value_or(cost.sequences))) {
      ++counts_.over_requests;
      return AsksTooMuch(name, "requests", "sequences", cost.sequences,
                         *limits_.requests_per_minute, *requests_.Left(now) + 1, wait);
    }
    if (const double wait = tokens_.WaitFor(cost.tokens, now); wait > 0.0) {
      ++counts_.over_tokens;
      return AsksTooMuch(name, "tokens", "tokens (prompt and max_tokens of each sequence)",
                         cost.tokens, *limits_.tokens_per_minute, *tokens_.Left(now), wait);
    }
    requests_.Take(static_cast<double>(more));
    tokens_.Take(static_cast<double>(cost.tokens));
    num_sequences_ += more_at_once;
    return absl::OkStatus();
  }
  void Release(const RequestCost& cost) {
    MutexLock lock(mutex_);
    tokens_.GiveBack(static_cast<double>(cost.tokens));
    num_sequences_ -= cost.at_once - 1;
  }
  std::optional<uint64_t> tokens_left(absl::Time now) {
    MutexLock lock(mutex_);
    return tokens_.Left(now);
  }
  std::optional<uint64_t> max_at_once() const {
    MutexLock lock(mutex_);
    return limits_.concurrency;
  }
  uint32_t weight() const {
    MutexLock lock(mutex_);
    return static_cast<uint32_t>(limits_.weight.value_or(1));
  }
  // Without a name.
  KeyCounts counts() const {
    MutexLock lock(mutex_);
    return counts_;
  }

 private:
  mutable Mutex mutex_;
  KeyLimits limits_ ABSL_GUARDED_BY(mutex_);
  RateBucket requests_ ABSL_GUARDED_BY(mutex_);
  RateBucket tokens_ ABSL_GUARDED_BY(mutex_);
  KeyCounts counts_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_sequences_ ABSL_GUARDED_BY(mutex_) = 0;  // of the requests that run
};

// One line of the file.  Thread-safe once it is in use.
class KeyAccount final : public HttpClient {
 public:
  KeyAccount(std::string name, KeyDigest digest, const KeyLimits& limits)
      : name_(std::move(name)),
        tenant_("key:" + absl::BytesToHexString(absl::string_view(
                             reinterpret_cast<const char*>(digest.data()), digest.size()))),
        digest_(digest),
        limits_(limits) {}

  const std::string& name() const override { return name_; }
  const std::string& tenant() const override { return tenant_; }
  uint32_t weight() const override { return usage_->weight(); }
  std::string cache_scope() const override { return tenant_; }
  int32_t least_priority() const override { return limits_.priority; }
  bool sees_all() const override { return limits_.admin; }
  absl::Status Reserve(const RequestCost& cost) override {
    return usage_->Reserve(name_, cost, absl::Now());
  }
  void Release(const RequestCost& cost) override { usage_->Release(cost); }
  std::optional<uint64_t> tokens_left() override { return usage_->tokens_left(absl::Now()); }
  std::optional<uint64_t> max_at_once() override { return usage_->max_at_once(); }
  const KeyDigest& digest() const { return digest_; }
  void ChargeTokens(uint64_t prompt_tokens, uint64_t completion_tokens) override {
    usage_->ChargeTokens(prompt_tokens, completion_tokens);
  }
  KeyCounts counts() const {
    KeyCounts counts = usage_->counts();
    counts.name = name_;
    return counts;
  }

  // Before it is in use: goes on where `before` is, under the limits of this line.
  void Begin(const KeyAccount* before) {
    if (before != nullptr) usage_ = before->usage_;
    usage_->SetLimits(limits_);
  }
  std::optional<HttpFailure> Enter(absl::Time now) { return usage_->Enter(name_, now); }
  void Leave() { usage_->Leave(); }

 private:
  const std::string name_;
  const std::string tenant_;  // by the key, whatever its name is
  const KeyDigest digest_;
  const KeyLimits limits_;
  // Shared by the lines of this key in each version of the file.
  std::shared_ptr<KeyUsage> usage_ = std::make_shared<KeyUsage>();
};

KeyLease::~KeyLease() {
  if (account_ != nullptr && has_place_) account_->Leave();
}
std::shared_ptr<HttpClient> KeyLease::client() const { return account_; }

namespace {

absl::StatusOr<std::shared_ptr<KeyAccount>> ParseLine(absl::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.size() < 2 || !absl::StartsWith(words[1], "sha256:")) {
    return absl::InvalidArgumentError("NAME sha256:HEX expected");
  }
  const std::string hex = words[1].substr(7);
  if (hex.size() != 2 * SHA256_DIGEST_LENGTH || !std::all_of(hex.begin(), hex.end(), [](char c) {
        return absl::ascii_isxdigit(static_cast<unsigned char>(c));
      })) {
    return absl::InvalidArgumentError("64 hexadecimal digits expected after sha256:");
  }
  KeyDigest digest;
  for (size_t i = 0; i < digest.size(); ++i) {
    std::from_chars(&hex[2 * i], &hex[2 * i] + 2, digest[i], 16);
  }
  KeyLimits limits;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "admin") {
      limits.admin = true;
      continue;
    }
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    if (name == "priority") {
      if (equals == std::string::npos ||
          !absl::SimpleAtoi(words[i].substr(equals + 1), &limits.priority) ||
          std::abs(limits.priority) > kMaxPriority) {
        return absl::InvalidArgumentError(
            absl::StrFormat("'%s': priority=N with N from -%d to %d expected", words[i],
                            kMaxPriority, kMaxPriority));
      }
      continue;
    }
    std::optional<uint64_t>* limit = name == "requests"      ? &limits.requests_per_minute
                                     : name == "tokens"      ? &limits.tokens_per_minute
                                     : name == "concurrency" ? &limits.concurrency
                                     : name == "weight"      ? &limits.weight
                                                             : nullptr;
    uint64_t value = 0;
    if (limit == nullptr || equals == std::string::npos ||
        !absl::SimpleAtoi(words[i].substr(equals + 1), &value) || value == 0 ||
        (name == "weight" && value > kMaxKeyWeight)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("'%s': requests=N, tokens=N or concurrency=N with N above 0, or weight=N "
                          "with N from 1 to "
                          "%d expected",
                          words[i], kMaxKeyWeight));
    }
    *limit = value;
  }
  return std::make_shared<KeyAccount>(words[0], digest, limits);
}

}  // namespace

absl::StatusOr<ApiKeys::Accounts> ApiKeys::ParseAccounts(std::string_view text) {
  Accounts accounts;
  int number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.empty() || stripped[0] == '#') continue;
    auto account = ParseLine(stripped);
    if (!account.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("API keys, line %d: %s", number, account.status().message()));
    }
    for (const auto& other : accounts) {
      if (other->name() == (*account)->name() || other->digest() == (*account)->digest()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "API keys, line %d: the name or the key of '%s' again", number, other->name()));
      }
    }
    accounts.push_back(*std::move(account));
  }
  if (accounts.empty()) return absl::InvalidArgumentError("API keys: there is none");
  return accounts;
}

absl::StatusOr<std::shared_ptr<ApiKeys>> ApiKeys::Parse(std::string_view text) {
  auto keys = std::make_shared<ApiKeys>();
  TANDEM_RETURN_IF_ERROR(keys->Replace(text).status());
  return keys;
}

absl::StatusOr<ApiKeys::Change> ApiKeys::Replace(std::string_view text) {
  TANDEM_ASSIGN_OR_RETURN(Accounts accounts, ParseAccounts(text));
  MutexLock lock(mutex_);
  Change change;
  for (const auto& account : accounts) {
    const auto same = std::find_if(
        accounts_->begin(), accounts_->end(),
        [&account](const auto& before) { return before->digest() == account->digest(); });
    account->Begin(same == accounts_->end() ? nullptr : same->get());
    ++(same == accounts_->end() ? change.num_new : change.num_kept);
  }
  change.num_removed = accounts_->size() - change.num_kept;
  accounts_ = std::make_shared<const Accounts>(std::move(accounts));
  return change;
}

absl::StatusOr<std::shared_ptr<ApiKeys>> ApiKeys::Load(const std::string& path) {
  auto keys = std::make_shared<ApiKeys>();
  keys->path_ = path;
  TANDEM_RETURN_IF_ERROR(keys->Reload().status());
  return keys;
}

absl::StatusOr<ApiKeys::Change> ApiKeys::Reload() {
  std::ifstream file(path_);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrFormat("API keys: cannot read '%s'", path_));
  }
  auto change = Replace(text.str());
  if (change.ok()) return change;
  return absl::Status(change.status().code(),
                      absl::StrFormat("'%s': %s", path_, change.status().message()));
}

std::vector<KeyCounts> ApiKeys::Usage() const {
  std::shared_ptr<const Accounts> accounts;
  {
    MutexLock lock(mutex_);
    accounts = accounts_;
  }
  std::vector<KeyCounts> usage;
  for (const auto& account : *accounts) usage.push_back(account->counts());
  return usage;
}

std::variant<KeyLease, HttpFailure> ApiKeys::Admit(std::string_view key, absl::Time now,
                                                   bool counts) {
  KeyDigest digest;
  ::SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  std::shared_ptr<const Accounts> accounts;
  {
    MutexLock lock(mutex_);
    accounts = accounts_;
  }
  std::shared_ptr<KeyAccount> found;
  for (const auto& account : *accounts) {  // all of them, found or not
    if (::CRYPTO_memcmp(digest.data(), account->digest().data(), digest.size()) == 0) {
      found = account;
    }
  }
  if (found == nullptr) {
    num_unknown_.fetch_add(1, std::memory_order_relaxed);
    return HttpFailure{
        401,
        absl::UnauthenticatedError(key.empty() ? "an API key is needed: Authorization: Bearer KEY"
                                               : "this API key is not known"),
        std::nullopt};
  }
  if (counts) {
    if (auto failure = found->Enter(now)) return *std::move(failure);
  }
  return KeyLease(std::move(found), counts);
}

}  // namespace tandem::gateway

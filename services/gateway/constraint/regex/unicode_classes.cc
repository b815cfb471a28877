#include "services/gateway/constraint/regex/unicode_classes.h"

#include <re2/re2.h>
#include <utf8proc.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "services/common/base/mutex.h"

namespace tandem::gateway::constraint {
namespace {

// Every code point in ascending order, as UTF-8.
const std::string& AllText() {
  static const std::string* const text = [] {
    auto* all = new std::string;
    all->reserve(4 << 20);
    const CodePointSet code_points = CodePointSet::All();
    for (const CodePointRange& range : code_points.ranges()) {
      for (uint32_t c = range.first; c <= range.last; ++c) {
        utf8proc_uint8_t bytes[4];
        const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
        all->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
      }
    }
    return all;
  }();
  return *text;
}

uint32_t Decode(const char* bytes, size_t available) {
  utf8proc_int32_t code_point = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes),
                   static_cast<utf8proc_ssize_t>(available), &code_point);
  return static_cast<uint32_t>(code_point);
}

absl::StatusOr<CodePointSet> Enumerate(const std::string& name) {
  RE2::Options options;
  options.set_log_errors(false);
  const RE2 runs(absl::StrFormat("(\\p{%s}+)", name), options);
  if (!runs.ok()) {
    return absl::InvalidArgumentError(absl::StrFormat("\\p{%s} is no known class", name));
  }
  const std::string& text = AllText();
  re2::StringPiece rest(text);
  std::string run;
  std::vector<CodePointRange> ranges;
  while (RE2::FindAndConsume(&rest, runs, &run)) {
    const char* last = run.data() + run.size() - 1;
    while ((static_cast<unsigned char>(*last) & 0xC0) == 0x80) --last;
    ranges.push_back({Decode(run.data(), run.size()),
                      Decode(last, static_cast<size_t>(run.data() + run.size() - last))});
  }
  // A run may pass over the surrogates, which the text lacks; the set leaves them out.
  return CodePointSet(std::move(ranges));
}

utf8proc_int32_t FoldKey(uint32_t code_point) {
  const auto c = static_cast<utf8proc_int32_t>(code_point);
  return utf8proc_tolower(utf8proc_toupper(c));
}

// Code points that share a fold key with another one, by their key.
using Orbits = absl::flat_hash_map<utf8proc_int32_t, std::vector<uint32_t>>;

const Orbits& CaseOrbits() {
  static const Orbits* const orbits = [] {
    Orbits all;
    const CodePointSet code_points = CodePointSet::All();
    for (const CodePointRange& range : code_points.ranges()) {
      for (uint32_t c = range.first; c <= range.last; ++c) {
        const utf8proc_int32_t key = FoldKey(c);
        if (key == static_cast<utf8proc_int32_t>(c)) continue;
        std::vector<uint32_t>& orbit = all[key];
        if (orbit.empty()) orbit.push_back(static_cast<uint32_t>(key));
        orbit.push_back(c);
      }
    }
    return new Orbits(std::move(all));
  }();
  return *orbits;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CodePointSet>> UnicodeClass(std::string_view name) {
  static Mutex mutex;
  static auto* const known = new std::map<std::string, std::shared_ptr<const CodePointSet>>;
  MutexLock lock(mutex);
  const std::string key(name);
  if (const auto found = known->find(key); found != known->end()) return found->second;
  auto ranges = Enumerate(key);
  if (!ranges.ok()) return ranges.status();
  return known->emplace(key, std::make_shared<const CodePointSet>(*std::move(ranges)))
      .first->second;
}

CodePointSet FoldCase(const CodePointSet& set) {
  std::vector<CodePointRange> all = set.ranges();
  const Orbits& orbits = CaseOrbits();
  const auto add = [&](utf8proc_int32_t key) {
    const auto orbit = orbits.find(key);
    if (orbit == orbits.end()) return;
    for (const uint32_t c : orbit->second) all.push_back({c, c});
  };
  if (set.size() <= 4096) {
    for (const CodePointRange& range : set.ranges()) {
      for (uint32_t c = range.first; c <= range.last; ++c) add(FoldKey(c));
    }
  } else {
    for (const auto& [key, orbit] : orbits) {
      for (const uint32_t c : orbit) {
        if (!set.Contains(c)) continue;
        add(key);
        break;
      }
    }
  }
  return CodePointSet(std::move(all));
}

}  // namespace tandem::gateway::constraint

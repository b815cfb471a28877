// What may follow in a rule: sequences, choices and repeats of terminals and calls of other rules.
//
// A part is at once a piece of a rule and a position in it: the rest to match.  Expand lists
// the ways on, each with the part that is left after it (Antimirov's partial derivatives).  So
// repeats with bounds and the members of objects are positions made when they are reached, and an
// array of up to a million items costs what a text writes of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/gateway/constraint/regex/regex_arena.h"

namespace tandem::gateway::constraint {

using PartId = uint32_t;
using RuleId = uint32_t;
inline constexpr PartId kDone = 0;   // nothing is left
inline constexpr PartId kStuck = 1;  // no way on
// The tag of a terminal after which the text is complete: tokens never go on beyond it.
inline constexpr uint32_t kFinalTag = UINT32_MAX;

// The members of a JSON object, from after '{' to '}' inclusive.
struct ObjectSpec {
  struct Property {
    std::string key;  // as it is written, with quotes
    RuleId value = 0;
    bool required = false;
  };
  // Members whose keys are not listed.
  struct Extra {
    RegexId key = kNothing;  // with quotes
    RuleId value = 0;
  };
  std::vector<Property> properties;
  std::vector<Extra> extras;
  uint32_t min_members = 0;
  uint32_t max_members = UINT32_MAX;
  bool any_order = false;  // else properties come as listed, extras after them
  // The text before the first key, between members, between key and value, at the end.
  RegexId open = kEmptyText;
  RegexId comma = kNothing;
  RegexId colon = kNothing;
  RegexId close = kNothing;
  uint32_t first_tag = 0;  // of 2 * (properties + extras) + 1 tags
  // Filled by PartArena::AddObject, for each property to begin at: the end of the properties up to
  // and including the next required one, and how many required ones there are.
  std::vector<uint32_t> reach;
  std::vector<uint32_t> num_required;
};

struct Expansion {
  bool final = false;       // the rule may end here
  RegexId scan = kNothing;  // the terminals that may come, each followed by its tag
  std::vector<std::pair<uint32_t, PartId>> after_tag;
  std::vector<std::pair<RuleId, PartId>> after_rule;
};

// Single-thread.  A copy is an arena of its own with the same ids.
class PartArena {
 public:
  PartArena();

  // `regex` must not have the empty text.
  PartId Terminal(RegexId regex);
  // A terminal that may be empty.
  PartId Text(RegexId regex, RegexArena& arena);
  // The whole text of a grammar.  REQUIRES: used as the root's body alone.
  PartId WholeText(RegexId regex, RegexArena& arena);
  PartId Call(RuleId rule);
  PartId Sequence(PartId a, PartId b);
  PartId Choice(std::vector<PartId> children);
  PartId Repeat(PartId a, uint32_t min, uint32_t max);
  // The members of object number `object`.
  PartId Members(uint32_t object);

  // A rule's number; its body is set later.
  RuleId AddRule();
  void SetRule(RuleId rule, PartId body) { rules_[rule].body = body; }
  // Whether the rule has the empty text.  REQUIRES: set before parts call it.
  void SetNullable(RuleId rule) { rules_[rule].nullable = true; }
  PartId body(RuleId rule) const { return rules_[rule].body; }
  // REQUIRES: no more required properties than max_members; min_members can be reached.
  uint32_t AddObject(ObjectSpec object);
  ObjectSpec& object(uint32_t number) { return objects_[number]; }
  size_t num_objects() const { return objects_.size(); }

  // The ways on from `part`.  The reference is good for the arena's life.
  const Expansion& Expand(PartId part, RegexArena& arena);
  // Whether `part` may end and has no way on.
  bool IsEnd(PartId part, RegexArena& arena);

  bool nullable(PartId part) const { return parts_[part].nullable; }
  size_t size() const { return parts_.size(); }
  size_t memory_bytes() const;

 private:
  enum class Kind : uint8_t {
    kEnd,
    kDead,
    kTerminal,
    kCall,
    kSequence,
    kChoice,
    kRepeat,
    kMembers,
  };
  struct Part {
    Kind kind = Kind::kEnd;
    bool nullable = false;
    // kTerminal: regex, whether its tag is kFinalTag.  kCall: rule.  kSequence: two parts.
    // kChoice: offset and number of children. kRepeat: part, min, max.  kMembers: object, number of
    // a MembersState.
    uint32_t a = 0;
    uint32_t b = 0;
    uint32_t c = 0;
  };
  // How far an object is.  `next` is a property's index in declared order, else a number of
  // `seen_`; 0 is the empty set.
  struct MembersState {
    uint32_t next = 0;
    uint32_t count = 0;  // no further than what min_members and max_members ask
    bool first = true;
    friend bool operator==(const MembersState&, const MembersState&) = default;
  };
  struct Rule {
    PartId body = kStuck;
    bool nullable = false;
  };

  PartId Intern(const Part& part, const std::vector<PartId>& children = {});
  PartId MembersAt(uint32_t object, const MembersState& state);
  void ExpandInto(PartId part, PartId then, RegexArena& arena, Expansion& out,
                  std::vector<RegexId>& scans);
  void ExpandMembers(const Part& part, PartId then, RegexArena& arena, Expansion& out,
                     std::vector<RegexId>& scans);

  std::vector<Part> parts_;
  std::vector<PartId> children_;
  absl::flat_hash_map<std::vector<uint32_t>, PartId> ids_;
  std::vector<Rule> rules_;
  std::vector<ObjectSpec> objects_;
  std::vector<MembersState> members_;
  absl::flat_hash_map<std::vector<uint32_t>, uint32_t> member_ids_;
  std::vector<std::vector<uint32_t>> seen_;  // sets of properties, a bit each
  absl::flat_hash_map<std::vector<uint32_t>, uint32_t> seen_ids_;
  uint32_t next_tag_ = 1u << 31;  // tags below are terminals' regexes
  // Shared by copies of the arena until they change it; never changed once made.
  std::vector<std::shared_ptr<const Expansion>> expansions_;
  size_t expansion_bytes_ = 0;
};

}  // namespace tandem::gateway::constraint

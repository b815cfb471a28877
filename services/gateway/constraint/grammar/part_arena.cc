#include "services/gateway/constraint/grammar/part_arena.h"

#include <algorithm>

#include "services/common/base/check.h"
#include "services/gateway/constraint/regex/expression.h"

namespace tandem::gateway::constraint {

PartArena::PartArena() {
  parts_.push_back({.kind = Kind::kEnd, .nullable = true});
  parts_.push_back({.kind = Kind::kDead});
  seen_.emplace_back();
}

PartId PartArena::Intern(const Part& part, const std::vector<PartId>& children) {
  std::vector<uint32_t> key = {static_cast<uint32_t>(part.kind)};
  if (part.kind == Kind::kChoice) {
    key.insert(key.end(), children.begin(), children.end());
  } else {
    key.insert(key.end(), {part.a, part.b, part.c});
  }
  const auto [found, added] = ids_.try_emplace(std::move(key), static_cast<PartId>(parts_.size()));
  if (!added) return found->second;
  parts_.push_back(part);
  if (part.kind == Kind::kChoice) {
    parts_.back().a = static_cast<uint32_t>(children_.size());
    parts_.back().b = static_cast<uint32_t>(children.size());
    children_.insert(children_.end(), children.begin(), children.end());
  }
  return found->second;
}

PartId PartArena::Terminal(RegexId regex) {
  if (regex == kNothing) return kStuck;
  return Intern({.kind = Kind::kTerminal, .a = regex});
}

PartId PartArena::Text(RegexId regex, RegexArena& arena) {
  if (!arena.node(regex).nullable) return Terminal(regex);
  return Choice({kDone, Terminal(arena.NonEmpty(regex))});
}

PartId PartArena::WholeText(RegexId regex, RegexArena& arena) {
  const RegexId some = arena.NonEmpty(regex);
  if (some == kNothing) return arena.node(regex).nullable ? kDone : kStuck;
  const PartId terminal = Intern({.kind = Kind::kTerminal, .a = some, .b = 1});
  return arena.node(regex).nullable ? Choice({kDone, terminal}) : terminal;
}

PartId PartArena::Call(RuleId rule) {
  return Intern({.kind = Kind::kCall, .nullable = rules_[rule].nullable, .a = rule});
}

PartId PartArena::Sequence(PartId a, PartId b) {
  if (a == kDone) return b;
  if (b == kDone) return a;
  if (a == kStuck || b == kStuck) return kStuck;
  // Nested to the right.
  std::vector<PartId> spine;
  while (parts_[a].kind == Kind::kSequence) {
    spine.push_back(parts_[a].a);
    a = parts_[a].b;
  }
  spine.push_back(a);
  for (; !spine.empty(); spine.pop_back()) {
    const bool nullable = parts_[spine.back()].nullable && parts_[b].nullable;
    b = Intern({.kind = Kind::kSequence, .nullable = nullable, .a = spine.back(), .b = b});
  }
  return b;
}

PartId PartArena::Choice(std::vector<PartId> children) {
  std::vector<PartId> flat;
  for (const PartId child : children) {
    const Part& part = parts_[child];
    if (part.kind == Kind::kChoice) {
      flat.insert(flat.end(), children_.begin() + part.a, children_.begin() + part.a + part.b);
    } else {
      flat.push_back(child);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  std::erase(flat, kStuck);
  if (flat.empty()) return kStuck;
  if (flat.size() == 1) return flat[0];
  const bool nullable =
      std::ranges::any_of(flat, [this](PartId id) { return parts_[id].nullable; });
  return Intern({.kind = Kind::kChoice, .nullable = nullable}, flat);
}

PartId PartArena::Repeat(PartId a, uint32_t min, uint32_t max) {
  if (max == 0 || a == kDone) return kDone;
  if (a == kStuck) return min == 0 ? kDone : kStuck;
  if (min == 1 && max == 1) return a;
  if (parts_[a].nullable) min = 0;
  return Intern({.kind = Kind::kRepeat, .nullable = min == 0, .a = a, .b = min, .c = max});
}

RuleId PartArena::AddRule() {
  rules_.emplace_back();
  return static_cast<RuleId>(rules_.size() - 1);
}

uint32_t PartArena::AddObject(ObjectSpec object) {
  object.first_tag = next_tag_;
  next_tag_ += static_cast<uint32_t>(2 * (object.properties.size() + object.extras.size()) + 1);
  const auto count = static_cast<uint32_t>(object.properties.size());
  object.reach.assign(count + 1, count);
  object.num_required.assign(count + 1, 0);
  for (uint32_t i = count; i-- > 0;) {
    const bool required = object.properties[i].required;
    object.reach[i] = required ? i + 1 : object.reach[i + 1];
    object.num_required[i] = object.num_required[i + 1] + (required ? 1 : 0);
  }
  objects_.push_back(std::move(object));
  return static_cast<uint32_t>(objects_.size() - 1);
}

PartId PartArena::Members(uint32_t object) { return MembersAt(object, {}); }

PartId PartArena::MembersAt(uint32_t object, const MembersState& state) {
  const auto [found, added] =
      member_ids_.try_emplace({object, state.next, state.count, state.first ? 1u : 0u},
                              static_cast<uint32_t>(members_.size()));
  if (added) members_.push_back(state);
  return Intern({.kind = Kind::kMembers, .a = object, .b = found->second});
}

bool PartArena::IsEnd(PartId part, RegexArena& arena) {
  if (part == kDone) return true;
  if (!parts_[part].nullable) return false;
  const Expansion& expansion = Expand(part, arena);
  return expansion.scan == kNothing && expansion.after_rule.empty();
}

const Expansion& PartArena::Expand(PartId part, RegexArena& arena) {
  if (part < expansions_.size() && expansions_[part] != nullptr) return *expansions_[part];
  auto expansion = std::make_shared<Expansion>();
  std::vector<RegexId> scans;
  ExpandInto(part, kDone, arena, *expansion, scans);
  expansion->final = parts_[part].nullable;
  expansion->scan = arena.Or(std::move(scans));
  const auto tidy = [](auto& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    list.shrink_to_fit();
  };
  tidy(expansion->after_tag);
  tidy(expansion->after_rule);
  expansion_bytes_ +=
      sizeof(Expansion) + 32 + expansion->after_tag.size() * 8 + expansion->after_rule.size() * 8;
  if (expansions_.size() <= part) expansions_.resize(parts_.size());
  expansions_[part] = std::move(expansion);
  return *expansions_[part];
}

void PartArena::ExpandInto(PartId id, PartId then, RegexArena& arena, Expansion& out,
                           std::vector<RegexId>& scans) {
  for (;;) {
    const Part part = parts_[id];
    switch (part.kind) {
      case Kind::kEnd:
      case Kind::kDead:
        return;
      case Kind::kTerminal: {
        const uint32_t tag = part.b == 1 ? kFinalTag : part.a;
        scans.push_back(arena.Concat(part.a, arena.Tag(tag)));
        out.after_tag.emplace_back(tag, then);
        return;
      }
      case Kind::kCall:
        out.after_rule.emplace_back(part.a, then);
        return;
      case Kind::kSequence: {
        const PartId rest = Sequence(part.b, then);
        ExpandInto(part.a, rest, arena, out, scans);
        if (!parts_[part.a].nullable) return;
        id = part.b;
        break;
      }
      case Kind::kChoice:
        for (uint32_t i = 0; i < part.b; ++i) {
          ExpandInto(children_[part.a + i], then, arena, out, scans);
        }
        return;
      case Kind::kRepeat: {
        const uint32_t min = part.b == 0 ? 0 : part.b - 1;
        const uint32_t max = part.c == kUnlimited ? kUnlimited : part.c - 1;
        ExpandInto(part.a, Sequence(Repeat(part.a, min, max), then), arena, out, scans);
        return;
      }
      case Kind::kMembers:
        ExpandMembers(part, then, arena, out, scans);
        return;
    }
  }
}

void PartArena::ExpandMembers(const Part& part, PartId then, RegexArena& arena, Expansion& out,
                              std::vector<RegexId>& scans) {
  const uint32_t number = part.a;
  const ObjectSpec& object = objects_[number];
  const MembersState state = members_[part.b];
  const auto num_properties = static_cast<uint32_t>(object.properties.size());
  const auto num_extras = static_cast<uint32_t>(object.extras.size());
  std::vector<uint32_t> seen = object.any_order ? seen_[state.next] : std::vector<uint32_t>();
  seen.resize((num_properties + 31) / 32, 0);
  const auto is_seen = [&](uint32_t i) { return (seen[i / 32] >> (i % 32) & 1) != 0; };
  uint32_t required = 0;   // properties still to come
  uint32_t available = 0;  // properties that may still come
  if (object.any_order) {
    for (uint32_t i = 0; i < num_properties; ++i) {
      if (is_seen(i)) continue;
      ++available;
      required += object.properties[i].required ? 1 : 0;
    }
  } else {
    required = object.num_required[state.next];
    available = num_properties - state.next;
  }

  MembersState later = state;
  later.first = false;
  const uint32_t top =
      std::max(object.min_members, object.max_members == UINT32_MAX ? 0 : object.max_members);
  if (later.count < top) ++later.count;
  const uint32_t tag_base = object.first_tag + (state.first ? 0 : num_properties + num_extras);
  // Whether, after one more member, the rest can still be written.
  const auto fits = [&](uint32_t required_left, uint32_t available_left) {
    const uint64_t written = uint64_t{state.count} + 1;
    return written + required_left <= object.max_members &&
           (num_extras > 0 || written + available_left >= object.min_members);
  };

  std::vector<RegexArena::Entry> keys;
  std::vector<RegexId> members;
  const auto add = [&](uint32_t i, uint32_t next_state) {
    MembersState next = later;
    next.next = next_state;
    const uint32_t tag = tag_base + i;
    const RuleId value =
        i < num_properties ? object.properties[i].value : object.extras[i - num_properties].value;
    out.after_tag.emplace_back(tag, Sequence(Call(value), Sequence(MembersAt(number, next), then)));
    return arena.Concat(object.colon, arena.Tag(tag));
  };
  if (object.any_order) {
    for (uint32_t i = 0; i < num_properties; ++i) {
      if (is_seen(i)) continue;
      if (!fits(required - (object.properties[i].required ? 1 : 0), available - 1)) continue;
      std::vector<uint32_t> with = seen;
      with[i / 32] |= 1u << (i % 32);
      const auto [found, added] = seen_ids_.try_emplace(with, static_cast<uint32_t>(seen_.size()));
      if (added) seen_.push_back(std::move(with));
      keys.push_back({object.properties[i].key, add(i, found->second)});
    }
  } else {
    for (uint32_t i = state.next; i < object.reach[state.next]; ++i) {
      if (!fits(object.num_required[i + 1], num_properties - i - 1)) continue;
      keys.push_back({object.properties[i].key, add(i, i + 1)});
    }
  }
  if (fits(required, available) && (object.any_order || required == 0)) {
    for (uint32_t i = 0; i < num_extras; ++i) {
      const uint32_t next = object.any_order ? state.next : num_properties;
      members.push_back(arena.Concat(object.extras[i].key, add(num_properties + i, next)));
    }
  }
  members.push_back(arena.LiteralTree(std::move(keys)));
  scans.push_back(
      arena.Concat(state.first ? object.open : object.comma, arena.Or(std::move(members))));
  if (required == 0 && state.count >= object.min_members) {
    const uint32_t tag = object.first_tag + 2 * (num_properties + num_extras);
    scans.push_back(arena.Concat(object.close, arena.Tag(tag)));
    out.after_tag.emplace_back(tag, then);
  }
}

size_t PartArena::memory_bytes() const {
  size_t bytes = parts_.capacity() * sizeof(Part) + children_.capacity() * sizeof(PartId) +
                 ids_.size() * 80 + rules_.capacity() * sizeof(Rule) +
                 members_.capacity() * sizeof(MembersState) + member_ids_.size() * 80 +
                 expansions_.capacity() * sizeof(void*) * 2 + expansion_bytes_;
  for (const auto& seen : seen_) bytes += 2 * (seen.capacity() * sizeof(uint32_t) + 48);
  for (const ObjectSpec& object : objects_) {
    bytes += sizeof(object) + 2 * object.reach.capacity() * sizeof(uint32_t) +
             object.extras.capacity() * sizeof(ObjectSpec::Extra);
    for (const auto& property : object.properties) bytes += sizeof(property) + property.key.size();
  }
  return bytes;
}

}  // namespace tandem::gateway::constraint

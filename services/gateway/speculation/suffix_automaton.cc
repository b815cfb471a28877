#include "services/gateway/speculation/suffix_automaton.h"

#include <algorithm>

namespace tandem::gateway {
namespace {

constexpr size_t kFewestSlots = 64;

uint64_t Hash(uint32_t state, uint32_t token) {
  const uint64_t key = (uint64_t{state} << 32 | token) * 0x9E3779B97F4A7C15u;
  return key ^ key >> 29;
}

}  // namespace

SuffixAutomaton::SuffixAutomaton() : slots_(kFewestSlots, kNone) { AddState(0, 0); }

void SuffixAutomaton::Clear() {
  text_.clear();
  states_.clear();
  edges_.clear();
  std::fill(slots_.begin(), slots_.end(), kNone);
  last_ = match_len_ = match_end_ = 0;
  AddState(0, 0);
}

size_t SuffixAutomaton::bytes() const {
  return states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
         slots_.capacity() * sizeof(uint32_t);
}

uint32_t SuffixAutomaton::AddState(uint32_t length, uint32_t end) {
  states_.push_back({.length = length, .end = end});
  return static_cast<uint32_t>(states_.size() - 1);
}

size_t SuffixAutomaton::FindSlot(uint32_t state, uint32_t token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = Hash(state, token) & mask;
  for (; slots_[slot] != kNone; slot = (slot + 1) & mask) {
    const Edge& edge = edges_[slots_[slot]];
    if (edge.state == state && edge.token == token) break;
  }
  return slot;
}

uint32_t SuffixAutomaton::FindEdge(uint32_t state, uint32_t token) const {
  return slots_[FindSlot(state, token)];
}

void SuffixAutomaton::AddEdge(uint32_t state, uint32_t token, uint32_t target) {
  if (2 * (edges_.size() + 1) > slots_.size()) GrowSlots();
  const auto index = static_cast<uint32_t>(edges_.size());
  edges_.push_back({state, token, target, states_[state].first_edge});
  states_[state].first_edge = index;
  slots_[FindSlot(state, token)] = index;
}

void SuffixAutomaton::GrowSlots() {
  slots_.assign(2 * slots_.size(), kNone);
  for (uint32_t e = 0; e < edges_.size(); ++e) {
    slots_[FindSlot(edges_[e].state, edges_[e].token)] = e;
  }
}

uint32_t SuffixAutomaton::Split(uint32_t state, uint32_t length, uint32_t from, uint32_t token) {
  const uint32_t part = AddState(length, states_[state].end);
  states_[part].link = states_[state].link;
  for (uint32_t e = states_[state].first_edge; e != kNone; e = edges_[e].next) {
    AddEdge(part, edges_[e].token, edges_[e].target);
  }
  for (; from != kNone; from = states_[from].link) {
    const uint32_t edge = FindEdge(from, token);
    if (edge == kNone || edges_[edge].target != state) break;
    edges_[edge].target = part;
  }
  states_[state].link = part;
  return part;
}

void SuffixAutomaton::Append(uint32_t token) {
  text_.push_back(token);
  const auto size = static_cast<uint32_t>(text_.size());
  const uint32_t whole = AddState(size, size);
  uint32_t state = last_;
  uint32_t edge = kNone;
  for (; state != kNone; state = states_[state].link) {
    edge = FindEdge(state, token);
    if (edge != kNone) break;
    AddEdge(state, token, whole);
  }
  uint32_t link = 0;
  if (state != kNone) {
    link = edges_[edge].target;
    const uint32_t length = states_[state].length + 1;
    if (states_[link].length != length) link = Split(link, length, state, token);
  }
  states_[whole].link = link;
  last_ = whole;
  match_len_ = states_[link].length;
  match_end_ = states_[link].end;
  states_[link].end = size;
}

}  // namespace tandem::gateway

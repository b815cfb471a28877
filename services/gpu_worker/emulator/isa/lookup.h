// Finds the operations of an encoding by number.
#pragma once

#include <array>
#include <initializer_list>

#include "services/gpu_worker/emulator/isa/vector_alu.h"

namespace tandem::rdna {

class Lookup {
 public:
  explicit Lookup(std::initializer_list<Table> tables) {
    for (const Table& table : tables) {
      for (const Entry& entry : table) entries_[entry.op] = &entry;
    }
  }
  // nullptr: there is no such operation.
  const Entry* Find(uint32_t op) const { return op < entries_.size() ? entries_[op] : nullptr; }

 private:
  std::array<const Entry*, 1024> entries_ = {};
};

}  // namespace tandem::rdna

// FLAT: atomic operations on global and flat memory.
#include "services/gpu_worker/emulator/isa/global_address.h"
#include "services/gpu_worker/emulator/isa/memory_atomic.h"
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

template <class Word, class Operation>
void GlobalAtomic(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  if (!FindLanes(wave, i, sizeof(Word), bytes)) return;
  ForEachLane(wave.Exec(), [&](int lane) {
    if (reinterpret_cast<uintptr_t>(bytes[lane]) % sizeof(Word) != 0) {
      wave.Fail(std::string(i.name) + " of an address that is not aligned");
      return;
    }
    const Word old = LaneAtomic<Word, Operation>::Run(wave, i.data, lane, bytes[lane]);
    if (i.glc) WriteAtomicResult(wave, i.dst, lane, old);
  });
}

#define MAKE_GLOBAL(OP, NAME, WORD, OPERATION) \
  Special(OP, NAME, &GlobalAtomic<WORD, OPERATION>, 0, Kind::kAtomic)

const Entry kGlobalAtomics[] = {MEMORY_ATOMICS(MAKE_GLOBAL)};

#undef MAKE_GLOBAL

}  // namespace

Table GlobalAtomicTable() { return kGlobalAtomics; }

}  // namespace tandem::rdna

#ifndef TOOLS_LAB_DEVICE_CALL_ENTRY_H_
#define TOOLS_LAB_DEVICE_CALL_ENTRY_H_

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/driver/entry_points.h"

namespace fineserve::emucuda {

// One enumerator per exported driver function, with the function's name.
enum class Entry : int {
#define EMUCUDA_ENTRY(symbol, name, since, need, args) symbol,
  FINESERVE_DRIVER_ENTRY_POINTS(EMUCUDA_ENTRY)
#undef EMUCUDA_ENTRY
#define EMUCUDA_ENTRY(plain, variant, name, since, args, call) \
  plain##_##variant,
      FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(EMUCUDA_ENTRY)
#undef EMUCUDA_ENTRY
};

#define EMUCUDA_ONE(...) +1
inline constexpr size_t kEntries = FINESERVE_DRIVER_ENTRY_POINTS(EMUCUDA_ONE)
    FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(EMUCUDA_ONE);
#undef EMUCUDA_ONE

struct EntryRow {
  const char* symbol;
  const char* name;
  int since;
  bool per_thread;  // a variant whose stream 0 is the calling thread's own
};

// Indexed by Entry.
std::span<const EntryRow, kEntries> EntryRows();

// Finds the entry that is exported as `word`; if there is none, finds all
// versions of the function named `word`.
std::vector<Entry> FindEntries(std::string_view word);

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_CALL_ENTRY_H_

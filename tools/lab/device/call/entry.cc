#include "tools/lab/device/call/entry.h"

namespace fineserve::emucuda {
namespace {

constexpr EntryRow kRows[kEntries] = {
#define EMUCUDA_ROW(symbol, name, since, need, args) \
  {#symbol, #name, since, false},
    FINESERVE_DRIVER_ENTRY_POINTS(EMUCUDA_ROW)
#undef EMUCUDA_ROW
#define EMUCUDA_ROW(plain, variant, name, since, args, call) \
  {#plain "_" #variant, #name, since, true},
        FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(EMUCUDA_ROW)
#undef EMUCUDA_ROW
};

}  // namespace

std::span<const EntryRow, kEntries> EntryRows() { return kRows; }

std::vector<Entry> FindEntries(std::string_view word) {
  std::vector<Entry> versions;
  for (size_t i = 0; i < kEntries; ++i) {
    const Entry entry = static_cast<Entry>(i);
    if (kRows[i].symbol == word) return {entry};
    if (kRows[i].name == word) versions.push_back(entry);
  }
  return versions;
}

}  // namespace fineserve::emucuda

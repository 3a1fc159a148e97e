#include "shim/weights/gated_lookup.h"

#include <iterator>

#include "kernels/driver/entry_points.h"
#include "shim/host/same_text.h"

namespace fineserve::shim {
namespace {

constexpr const char* kGatedSymbols[] = {
#define FINESERVE_GATED(symbol) #symbol,
    FINESERVE_GATED_CALLS(FINESERVE_GATED)
#undef FINESERVE_GATED
};

struct NamedSymbol {
  const char* name;
  const char* symbol;
  int since;
};

constexpr NamedSymbol kPlainSymbols[] = {
#define FINESERVE_ROW(symbol, name, since, need, args) {#name, #symbol, since},
    FINESERVE_DRIVER_ENTRY_POINTS(FINESERVE_ROW)
#undef FINESERVE_ROW
};

constexpr NamedSymbol kPerThreadSymbols[] = {
#define FINESERVE_ROW(plain, variant, name, since, args, call) \
  {#name, #plain "_" #variant, since},
    FINESERVE_DRIVER_PER_THREAD_ENTRY_POINTS(FINESERVE_ROW)
#undef FINESERVE_ROW
};

template <size_t N>
const char* NewestSymbol(const NamedSymbol (&rows)[N], const char* name,
                         int cuda_version) {
  const NamedSymbol* newest = nullptr;
  for (const NamedSymbol& row : rows) {
    if (row.since <= cuda_version && SameText(row.name, name) &&
        (newest == nullptr || row.since >= newest->since)) {
      newest = &row;
    }
  }
  return newest == nullptr ? nullptr : newest->symbol;
}

}  // namespace

GatedCall GatedForSymbol(const char* symbol) {
  if (symbol[0] != 'c' || symbol[1] != 'u') return GatedCall::kNone;
  for (size_t i = 0; i < std::size(kGatedSymbols); ++i) {
    if (SameText(kGatedSymbols[i], symbol)) return static_cast<GatedCall>(i);
  }
  return GatedCall::kNone;
}

GatedCall GatedForRequest(const char* name, int cuda_version, uint64_t flags) {
  const char* symbol = nullptr;
  if (flags == driver::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
    symbol = NewestSymbol(kPerThreadSymbols, name, cuda_version);
  }
  if (symbol == nullptr)
    symbol = NewestSymbol(kPlainSymbols, name, cuda_version);
  // A name with its suffix is no documented request, but can mean one thing
  // only.
  return GatedForSymbol(symbol == nullptr ? name : symbol);
}

}  // namespace fineserve::shim

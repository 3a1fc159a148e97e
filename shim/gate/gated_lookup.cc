#include "shim/gate/gated_lookup.h"

#include <iterator>

#include "daemon/contract/abi/hooks.h"
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

bool BeginsNumber(const char* text) {
  return text[0] == '_' && text[1] == 'v' && text[2] >= '0' && text[2] <= '9';
}

// True if `symbol`, without its ABI number and variant, is the name that the
// first `length` letters of `other` spell.
bool IsNameOf(const char* symbol, const char* other, size_t length) {
  size_t i = 0;
  while (i < length && symbol[i] == other[i]) ++i;
  return i == length && (symbol[i] == '\0' || symbol[i] == '_');
}

bool BeginsWith(const char* text, const char* begin) {
  while (*begin != '\0' && *text == *begin) {
    ++text;
    ++begin;
  }
  return *begin == '\0';
}

}  // namespace

GatedCall GatedForSymbol(const char* symbol) {
  if (symbol[0] != 'c' || symbol[1] != 'u') return GatedCall::kNone;
  for (size_t i = 0; i < std::size(kGatedSymbols); ++i) {
    if (SameText(kGatedSymbols[i], symbol)) return static_cast<GatedCall>(i);
  }
  return GatedCall::kNone;
}

bool IsNamedAsATouch(const char* name) {
  for (const char* begin : {"cuMemcpy", "cuMemset", "cuLaunch", "cuGraphLaunch",
                            "cuMemBatchDecompress", "cuStreamWriteValue",
                            "cuStreamWaitValue", "cuStreamBatchMemOp",
                            "cuStreamBegin", "cuMemPrefetch", "cuMemDiscard"}) {
    if (BeginsWith(name, begin)) return true;
  }
  return false;
}

bool IsLaterAbi(const char* symbol) {
  if (symbol[0] != 'c' || symbol[1] != 'u') return false;
  const size_t length = NameLength(symbol);
  if (!BeginsNumber(symbol + length)) return false;
  bool is_listed = false, is_name_listed = false;
  const auto compare = [&](const char* listed) {
    is_listed = is_listed || SameText(listed, symbol);
    is_name_listed = is_name_listed || IsNameOf(listed, symbol, length);
  };
  for (const char* listed : kGatedSymbols) compare(listed);
  for (const char* listed : abi::kHookSymbols) compare(listed);
  return is_name_listed && !is_listed;
}

size_t NameLength(const char* symbol) {
  size_t length = 0;
  while (symbol[length] != '\0' && !BeginsNumber(symbol + length) &&
         !BeginsWith(symbol + length, "_ptsz") &&
         !BeginsWith(symbol + length, "_ptds")) {
    ++length;
  }
  return length;
}

GatedCall GatedForRequest(const char* name, int cuda_version, uint64_t flags) {
  const char* symbol = nullptr;
  if (flags == driver::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
    symbol = NewestSymbol(kPerThreadSymbols, name, cuda_version);
  }
  if (symbol == nullptr)
    symbol = NewestSymbol(kPlainSymbols, name, cuda_version);
  // A name with a suffix is not a documented request, but can mean only one
  // function.
  return GatedForSymbol(symbol == nullptr ? name : symbol);
}

}  // namespace fineserve::shim

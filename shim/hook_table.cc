#include "shim/hook_table.h"

#include <string.h>

#include <climits>

namespace fineserve::shim {
namespace {

struct SymbolRow {
  const char* symbol;
  Hook hook;
};

constexpr SymbolRow kSymbols[] = {
    {"cuMemAlloc_v2", Hook::kMemAlloc},
    {"cuMemFree_v2", Hook::kMemFree},
    {"cuGetProcAddress", Hook::kGetProcAddress},
    {"cuGetProcAddress_v2", Hook::kGetProcAddress2},
    {"dlsym", Hook::kDlsym},
    {"dlvsym", Hook::kDlvsym},
};

struct RequestRow {
  const char* name;
  int since;  // the first CUDA version that answers with this ABI
  int until;  // the last
  Hook hook;
};

// The suffixed names are no documented requests. A driver that answers them
// all the same can only mean the ABI of that name.
constexpr RequestRow kRequests[] = {
    {"cuMemAlloc", 3020, INT_MAX, Hook::kMemAlloc},
    {"cuMemFree", 3020, INT_MAX, Hook::kMemFree},
    {"cuGetProcAddress", 11030, 11999, Hook::kGetProcAddress},
    {"cuGetProcAddress", 12000, INT_MAX, Hook::kGetProcAddress2},
    {"cuMemAlloc_v2", 0, INT_MAX, Hook::kMemAlloc},
    {"cuMemFree_v2", 0, INT_MAX, Hook::kMemFree},
    {"cuGetProcAddress_v2", 0, INT_MAX, Hook::kGetProcAddress2},
};

}  // namespace

Hook HookForSymbol(const char* symbol) {
  const bool candidate = (symbol[0] == 'c' && symbol[1] == 'u') ||
                         (symbol[0] == 'd' && symbol[1] == 'l');
  if (!candidate) return Hook::kNone;
  for (const SymbolRow& row : kSymbols) {
    if (strcmp(row.symbol, symbol) == 0) return row.hook;
  }
  return Hook::kNone;
}

Hook HookForRequest(const char* name, int cuda_version) {
  if (name[0] != 'c' || name[1] != 'u') return Hook::kNone;
  for (const RequestRow& row : kRequests) {
    if (cuda_version >= row.since && cuda_version <= row.until &&
        strcmp(row.name, name) == 0) {
      return row.hook;
    }
  }
  return Hook::kNone;
}

}  // namespace fineserve::shim

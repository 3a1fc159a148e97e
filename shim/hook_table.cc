#include "shim/hook_table.h"

#include <string.h>

#include <climits>

namespace fineserve::shim {
namespace {

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

bool IsLoaders(Hook hook) {
  return hook >= Hook::kDlsym && hook <= Hook::kDlmopen;
}

Hook HookForSymbol(const char* symbol) {
  const bool candidate = (symbol[0] == 'c' && symbol[1] == 'u') ||
                         (symbol[0] == 'd' && symbol[1] == 'l');
  if (!candidate) return Hook::kNone;
  for (uint32_t i = 1; i < abi::kHookCount; ++i) {
    if (strcmp(abi::kHookSymbols[i], symbol) == 0) return static_cast<Hook>(i);
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

#ifndef SHIM_TESTDATA_PAGE_COPY_H_
#define SHIM_TESTDATA_PAGE_COPY_H_

// A reader of engine pages for tests: copies, then checks.

#include <sys/types.h>

#include <string>
#include <vector>

#include "daemon/abi/engine_page.h"

namespace fineserve::shim {

struct PageCopy {
  abi::LinkState link_state = {};
  std::string link_message;
  std::string program;
  uint64_t epoch = 0;
  uint32_t pid = 0;
  uint64_t begun = 0;  // records begun
  uint64_t small_allocations = 0;
  uint64_t large_allocations = 0;
  uint64_t redirected_allocations = 0;
  uint64_t redirected_bytes = 0;
  uint64_t denied_allocations = 0;
  uint64_t stacks_captured = 0;
  uint32_t uses[abi::kHookCount][abi::kPathCount] = {};
  uint64_t deepbind_stripped = 0;
  uint64_t foreign_namespaces = 0;
  // Complete ones, oldest first.
  std::vector<abi::DecisionRecord> decisions;
};

inline uint32_t Uses(const PageCopy& page, abi::Hook hook, abi::Path path) {
  return page.uses[static_cast<uint32_t>(hook)][static_cast<uint32_t>(path)];
}

// `page` is kPageBytes long and may be written meanwhile.
PageCopy CopyPage(const void* page);

// How many engine pages a process has open, and a read-only mapping of the
// first (null if none; never unmapped).
int CountPages(pid_t pid);
const void* MapPageOf(pid_t pid);

}  // namespace fineserve::shim

#endif  // SHIM_TESTDATA_PAGE_COPY_H_

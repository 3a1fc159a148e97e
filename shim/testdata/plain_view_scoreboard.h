#ifndef SHIM_TESTDATA_PLAIN_VIEW_SCOREBOARD_H_
#define SHIM_TESTDATA_PLAIN_VIEW_SCOREBOARD_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "daemon/contract/abi/view_scoreboard.h"

namespace fineserve::shim {

// Returns the descriptor of an empty view scoreboard, as a daemon makes it for
// a ViewScoreboardWriter to adopt; -1 if it cannot be made.
inline int MakeViewScoreboard(uint32_t slabs) {
  const int fd = memfd_create(abi::kViewScoreboardMemfdName, MFD_CLOEXEC);
  const auto bytes = static_cast<off_t>(abi::ViewScoreboardBytes(slabs));
  if (fd < 0 || ftruncate(fd, bytes) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace fineserve::shim

#endif  // SHIM_TESTDATA_PLAIN_VIEW_SCOREBOARD_H_

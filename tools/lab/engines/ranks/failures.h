#ifndef TOOLS_LAB_ENGINES_RANKS_FAILURES_H_
#define TOOLS_LAB_ENGINES_RANKS_FAILURES_H_

#include "tools/lab/engines/weak_kv.h"

#pragma weak fs_kv_read_rank
#pragma weak fs_kv_join_ranks
#pragma weak fs_kv_poll
#pragma weak fs_kv_want
#pragma weak fs_kv_return_slab
#pragma weak fs_kv_publish
#pragma weak fs_kv_follow
#pragma weak fs_kv_leave
#pragma weak fs_kv_presence
#pragma weak fs_kv_come_back
#pragma weak fs_kv_resume

namespace stock_engine {

inline constexpr int kExitNoView = 5;
inline constexpr int kExitRankEnded = 6;

// If `result` is not FS_OK, prints "error FUNCTION RESULT TEXT" and exits with
// kExitNoView.
void Require(int result, const char* function);

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_FAILURES_H_

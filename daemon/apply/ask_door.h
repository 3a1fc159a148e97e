#ifndef DAEMON_APPLY_ASK_DOOR_H_
#define DAEMON_APPLY_ASK_DOOR_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/apply/message.h"

namespace fineserve::apply {

// Puts a question to the process behind the door at `path` and waits for its
// answer, for `timeout` at most. Errors:
//   NotFound            no process is behind it any more
//   PermissionDenied    another user may be
//   DeadlineExceeded    it does not answer
//   DataLoss            it answers, but not as we do
absl::StatusOr<Answer> AskDoor(const std::string& path,
                               const Question& question,
                               absl::Duration timeout);

}  // namespace fineserve::apply

#endif  // DAEMON_APPLY_ASK_DOOR_H_

#ifndef TOOLS_FSCTL_PROFILE_BATCH_ANSWERS_H_
#define TOOLS_FSCTL_PROFILE_BATCH_ANSWERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fsctl/profile/point_plan.h"
#include "tools/openai/client.h"

namespace fineserve::fsctl {

// Computes a sample from the answers to a batch that was sent at `start`. The
// step is measured on the request whose first token came last, from that token
// to the first end of any answer. All requests generate in this time, and
// events of a single connection need no comparison with another one's. Errors
// are one line with the fix:
//
//   FailedPrecondition   the batch did not generate together (queued): smaller
//   Unauthenticated      the engine wants another key
//   NotFound             no such path or model
//   Unimplemented        it does not stream, or counts no tokens
//   Unavailable          it refused, broke off, or did not answer
absl::StatusOr<Sample> ReadAnswers(openai::Clock::time_point start,
                                   const std::vector<openai::Answer>& answers);

// Returns OK if the answer is a complete stream with token counts.
absl::Status CheckAnswer(const openai::Answer& answer);

// Returns the message in OpenAI's {"error": {"message": …}}, vLLM's {"message":
// …} or FastAPI's {"detail": …}; otherwise the beginning of the body. On one
// line.
std::string ErrorMessage(const std::string& body);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_BATCH_ANSWERS_H_

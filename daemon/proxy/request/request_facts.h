#ifndef DAEMON_PROXY_REQUEST_REQUEST_FACTS_H_
#define DAEMON_PROXY_REQUEST_REQUEST_FACTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace fineserve::proxy {

// What a scheduler must know of a request's body (OpenAI's completions and
// chat completions; other bodies usually have a model at least).
struct RequestFacts {
  std::string model;  // empty: not said
  bool stream = false;
  uint32_t max_tokens = 0;     // for all choices together; 0: not said
  uint64_t text_bytes = 0;     // of prompt, messages and tools, as in the JSON
  uint32_t prompt_tokens = 0;  // given as token ids: counted, not estimated
};

// Reads the body without making a document of it. Grows the capacity, not the
// size, of `body` by what simdjson reads past its end. As in Python's reader
// the last of equal keys counts. A value of an unexpected type is the engine's
// to refuse; InvalidArgument, in one line for the client, if `body` is no JSON
// object.
absl::StatusOr<RequestFacts> ReadFacts(std::string* body);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_REQUEST_FACTS_H_

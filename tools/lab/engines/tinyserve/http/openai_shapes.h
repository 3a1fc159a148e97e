#ifndef TOOLS_LAB_ENGINES_TINYSERVE_HTTP_OPENAI_SHAPES_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_HTTP_OPENAI_SHAPES_H_

// Shapes of the answers: the JSON of vLLM 0.32.0 with the same fields in the
// same order, and its framing of server-sent events. Pure functions, any
// thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lab/engines/tinyserve/engine/sequence.h"
#include "tools/lab/engines/tinyserve/http/openai_request.h"

namespace tinyserve {

// The part that all answers to one request share.
struct Reply {
  Endpoint endpoint;
  std::string id;   // "cmpl-…", "chatcmpl-…"
  int64_t created;  // seconds of Unix time
  std::string model;
};

struct Usage {
  size_t prompt_tokens;
  size_t answer_tokens;
};

// Returns the whole answer of a request that is not streamed.
std::string WholeAnswer(const Reply& reply, std::string_view text,
                        Finish finish, const Usage& usage);

// Return the chunks of a stream, as JSON. If `usage` is null, the chunk has no
// usage.
std::string RoleChunk(const Reply& reply, const Usage* usage);  // chat's first
std::string TokenChunk(const Reply& reply, std::string_view text, Finish finish,
                       const Usage* usage);
std::string UsageChunk(const Reply& reply, const Usage& usage);

// Frames a chunk as an event. kDoneEvent is the event that ends a stream.
std::string Event(std::string_view json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

std::string ErrorBody(const ApiError& error);
std::string ModelList(const ModelCard& model, int64_t created);
std::string TokenList(const Tokenisation& tokenisation, const ModelCard& model);
std::string VersionBody();

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_HTTP_OPENAI_SHAPES_H_

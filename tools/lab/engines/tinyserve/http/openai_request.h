#ifndef TOOLS_LAB_ENGINES_TINYSERVE_HTTP_OPENAI_REQUEST_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_HTTP_OPENAI_REQUEST_H_

// Parameters of clients' requests, read as vLLM 0.32.0 does
// (vllm/entrypoints/openai/*/protocol.py). Parameters that matter only to a
// model that samples (temperature, top_p, penalties, …) are ignored. Parameters
// that would change the answer and that this engine does not support (n > 1,
// stop, logprobs, tools, …) are refused by name. Pure functions, any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/lab/engines/tinyserve/model/answer.h"
#include "tools/lab/engines/tinyserve/model/tokens.h"

namespace tinyserve {

struct ModelCard {
  std::string name;
  uint32_t most_tokens;  // --max-model-len: prompt and answer
};

struct ApiError {
  unsigned status;   // of HTTP
  std::string type;  // "BadRequestError", "NotFoundError", …
  std::string message;
  std::string param;  // or ""
};

struct Generation {
  std::vector<Token> prompt;
  Wanted wanted;
  bool stream = false;
  bool include_usage = false;     // a last chunk with usage
  bool continuous_usage = false;  // usage in each chunk
};

enum class Endpoint { kCompletions, kChat };

std::variant<Generation, ApiError> ReadGeneration(Endpoint endpoint,
                                                  std::string_view body,
                                                  const ModelCard& model);

struct Tokenisation {
  std::vector<Token> tokens;
  bool with_words = false;
};

std::variant<Tokenisation, ApiError> ReadTokenisation(std::string_view body,
                                                      const ModelCard& model);

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_HTTP_OPENAI_REQUEST_H_

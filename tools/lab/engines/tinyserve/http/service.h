#ifndef TOOLS_LAB_ENGINES_TINYSERVE_HTTP_SERVICE_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_HTTP_SERVICE_H_

// Answers for each path of the HTTP interface, without HTTP itself.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tools/lab/engines/tinyserve/engine/engine.h"
#include "tools/lab/engines/tinyserve/http/openai_request.h"
#include "tools/lab/engines/tinyserve/http/openai_shapes.h"

namespace tinyserve {

// An answer that needs no generation.
struct Answer {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
};

Answer Failure(const ApiError& error);

// How a request to generate is made to fail on purpose, if at all.
enum class Fault { kNone, kError, kReset };

// A request without its body.
struct Question {
  std::string method;
  std::string path;  // without the query
  std::string content_type;
};

// Confined to the HTTP thread; the engine must outlive it.
class Service {
 public:
  Service(const ModelCard& model, Engine* engine);

  // Returns null if `question` is a valid request to a path that generates.
  std::optional<Answer> AnswerAtOnce(const Question& question,
                                     std::string_view body);

  // Returns the endpoint if `path` generates.
  static std::optional<Endpoint> EndpointOf(std::string_view path);

  // Returns the fault for the next request to generate. After POST /fault/error
  // every second request is answered with 500; after /fault/reset every
  // request's connection is closed; /fault/none ends both. /fault/hang stops
  // the process (SIGSTOP) and /fault/die kills it.
  Fault NextFault();

  // `request_id` is the client's X-Request-Id, or the result of NewRequestId().
  Reply NewReply(Endpoint endpoint, const std::string& request_id) const;
  std::string NewRequestId();  // 32 hexadecimal digits

  // From now on, prints a line on stderr for each request, with its id and its
  // traceparent ("-" if it has none).
  void LogRequests() { logs_ = true; }
  void Arrived(const std::string& request_id, const std::string& traceparent);

  const ModelCard& model() const { return model_; }
  Engine* engine() { return engine_; }

 private:
  Answer Get(const std::string& path);
  Answer SetFault(std::string_view name);

  const ModelCard model_;
  Engine* const engine_;
  const int64_t started_;  // seconds of Unix time
  uint64_t next_random_;
  Fault fault_ = Fault::kNone;
  bool errs_next_ = false;
  bool logs_ = false;
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_HTTP_SERVICE_H_

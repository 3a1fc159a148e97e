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

// An answer that is known at once.
struct Answer {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
};

Answer Failure(const ApiError& error);

// How a request to generate is failed on purpose, if it is.
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

  // Null for a path that generates, asked as it must be.
  std::optional<Answer> AnswerAtOnce(const Question& question,
                                     std::string_view body);

  // The endpoint of a path that generates.
  static std::optional<Endpoint> EndpointOf(std::string_view path);

  // The fault of the next requests to generate: POST /fault/error answers every
  // second one with 500 from then on, /fault/reset ends the connections of all,
  // /fault/none neither. /fault/hang stops the process (SIGSTOP) and /fault/die
  // kills it.
  Fault NextFault();

  // `request_id`: the client's X-Request-Id, or one of NewRequestId().
  Reply NewReply(Endpoint endpoint, const std::string& request_id) const;
  std::string NewRequestId();  // 32 hexadecimal digits

  // Prints a line on stderr for each request from now on, with its id and its
  // traceparent ("-": none).
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

#include "tools/lab/engines/tinyserve/http/service.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <variant>

namespace tinyserve {
namespace {

constexpr char kPrometheusType[] = "text/plain; version=0.0.4; charset=utf-8";

int64_t UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// SplitMix64: ids need to differ, not to be secret.
uint64_t Next(uint64_t* state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool IsJson(std::string_view content_type) {
  return content_type.substr(0, content_type.find(';')) == "application/json";
}

constexpr std::string_view kFaultPath = "/fault/";

bool SetsFault(std::string_view path) {
  return path.substr(0, kFaultPath.size()) == kFaultPath;
}

bool IsPosted(std::string_view path) {
  return path == "/tokenize" || SetsFault(path) ||
         Service::EndpointOf(path).has_value();
}

bool IsGot(std::string_view path) {
  return path == "/health" || path == "/ping" || path == "/version" ||
         path == "/metrics" || path == "/v1/models";
}

Answer AnswerTokenisation(std::string_view body, const ModelCard& model) {
  const auto read = ReadTokenisation(body, model);
  if (const auto* error = std::get_if<ApiError>(&read)) return Failure(*error);
  return {.body = TokenList(std::get<Tokenisation>(read), model)};
}

}  // namespace

Answer Failure(const ApiError& error) {
  return {.status = error.status, .body = ErrorBody(error)};
}

Service::Service(const ModelCard& model, Engine* engine)
    : model_(model),
      engine_(engine),
      started_(UnixSeconds()),
      next_random_(
          static_cast<uint64_t>(Clock::now().time_since_epoch().count()) ^
          static_cast<uint64_t>(getpid()) << 40) {}

std::optional<Endpoint> Service::EndpointOf(std::string_view path) {
  if (path == "/v1/completions") return Endpoint::kCompletions;
  if (path == "/v1/chat/completions") return Endpoint::kChat;
  return {};
}

std::optional<Answer> Service::AnswerAtOnce(const Question& question,
                                            std::string_view body) {
  const bool posted = IsPosted(question.path);
  if (!posted && !IsGot(question.path)) {
    return Failure({404, "Not Found", "Not Found", ""});
  }
  if (question.method != (posted ? "POST" : "GET")) {
    return Failure({405, "Method Not Allowed", "Method Not Allowed", ""});
  }
  if (!posted) return Get(question.path);
  if (SetsFault(question.path)) {
    return SetFault(std::string_view(question.path).substr(kFaultPath.size()));
  }
  if (!IsJson(question.content_type)) {
    return Failure({400, "Bad Request",
                    "1 validation error:\n  Unsupported Media Type: Only "
                    "'application/json' is allowed",
                    ""});
  }
  if (question.path == "/tokenize") return AnswerTokenisation(body, model_);
  return {};
}

Answer Service::Get(const std::string& path) {
  if (path == "/metrics") {
    return {.content_type = kPrometheusType,
            .body = PrometheusText(engine_->metrics(), model_.name)};
  }
  if (path == "/version") return {.body = VersionBody()};
  if (path == "/v1/models") return {.body = ModelList(model_, started_)};
  return {.body = ""};  // health: the engine's thread ends the program if it
                        // cannot go on
}

Answer Service::SetFault(std::string_view name) {
  if (name == "hang") raise(SIGSTOP);
  if (name == "die") raise(SIGKILL);
  fault_ = name == "error"   ? Fault::kError
           : name == "reset" ? Fault::kReset
                             : Fault::kNone;
  return {.body = ""};
}

Fault Service::NextFault() {
  if (fault_ != Fault::kError) return fault_;
  errs_next_ = !errs_next_;
  return errs_next_ ? Fault::kError : Fault::kNone;
}

Reply Service::NewReply(Endpoint endpoint,
                        const std::string& request_id) const {
  const char* prefix = endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-";
  return {endpoint, prefix + request_id, UnixSeconds(), model_.name};
}

void Service::Arrived(const std::string& request_id,
                      const std::string& traceparent) {
  if (!logs_) return;
  fprintf(stderr, "request %s traceparent %s\n", request_id.c_str(),
          traceparent.empty() ? "-" : traceparent.c_str());
}

std::string Service::NewRequestId() {
  const uint64_t high = Next(&next_random_);
  const uint64_t low = Next(&next_random_);
  char text[33];
  snprintf(text, sizeof(text), "%016llx%016llx",
           static_cast<unsigned long long>(high),
           static_cast<unsigned long long>(low));
  return text;
}

}  // namespace tinyserve

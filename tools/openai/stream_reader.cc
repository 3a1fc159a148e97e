#include "tools/openai/stream_reader.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace fineserve::openai {
namespace {

using Json = nlohmann::json;

uint32_t Count(const Json& usage, const char* name) {
  const auto found = usage.find(name);
  return found != usage.end() && found->is_number_unsigned()
             ? found->get<uint32_t>()
             : 0;
}

// OpenAI's errors are {"error": {"message": …}}.
std::string MessageOf(const Json& error) {
  if (error.is_object() && error.contains("message") &&
      error["message"].is_string()) {
    return error["message"].get<std::string>();
  }
  return error.dump();
}

}  // namespace

void StreamReader::Feed(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == absl::string_view::npos) {
      partial_.append(bytes.data(), bytes.size());
      if (partial_.size() > kMostLineBytes) error_ = "a line is too long";
      if (!error_.empty()) partial_.clear();
      return;
    }
    if (partial_.empty()) {
      Line(bytes.substr(0, end));
    } else {
      partial_.append(bytes.data(), end);
      Line(partial_);
      partial_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void StreamReader::Line(absl::string_view line) {
  absl::ConsumeSuffix(&line, "\r");
  // Blank lines and ": comments" carry nothing.
  if (!absl::ConsumePrefix(&line, "data:")) return;
  absl::ConsumePrefix(&line, " ");
  if (line == "[DONE]") {
    done_ = true;
    return;
  }
  if (absl::StrContains(line, "\"usage\":{") ||
      absl::StrContains(line, "\"usage\": {") ||
      absl::StrContains(line, "\"error\"")) {
    Parse(line);
  }
  ++events_;
}

void StreamReader::Parse(absl::string_view json) {
  const Json event = Json::parse(json.begin(), json.end(), nullptr, false);
  if (!event.is_object()) return;
  if (event.contains("error")) error_ = MessageOf(event["error"]);
  if (!event.contains("usage") || !event["usage"].is_object()) return;
  prompt_tokens_ = Count(event["usage"], "prompt_tokens");
  completion_tokens_ = Count(event["usage"], "completion_tokens");
  // An event that has only usage is not a token.
  const bool only_usage = event.contains("choices") && event["choices"].empty();
  if (only_usage && events_ > 0) --events_;
}

uint32_t StreamReader::output_tokens() const {
  return completion_tokens_ != 0 ? completion_tokens_
                                 : static_cast<uint32_t>(events_);
}

}  // namespace fineserve::openai

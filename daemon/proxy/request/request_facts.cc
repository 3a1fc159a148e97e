#include "daemon/proxy/request/request_facts.h"

#include <simdjson.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/base/http/api_error.h"

namespace fineserve::proxy {
namespace {

namespace ondemand = simdjson::ondemand;
using simdjson::error_code;

// Deeper than any message: content parts and tool calls nest three levels.
constexpr int kMostLevels = 8;
constexpr size_t kLargeBytes = 1 << 20;

// The facts read so far.
struct Walk {
  const char* body;
  RequestFacts facts = {};
  uint64_t max_tokens = 0;
  uint64_t choices = 1;
  uint64_t prompts = 1;  // each of which is answered
};

absl::string_view ToView(std::string_view text) {
  return {text.data(), text.size()};
}

// Ignores errors about a value of an unexpected type, which the engine judges.
error_code Lenient(error_code e) {
  const bool fine = e == simdjson::INCORRECT_TYPE ||
                    e == simdjson::NUMBER_ERROR ||
                    e == simdjson::NUMBER_OUT_OF_RANGE;
  return fine ? simdjson::SUCCESS : e;
}

bool IsText(std::string_view key) {
  return key == "content" || key == "text" || key == "tool_calls" ||
         key == "function" || key == "arguments" || key == "name" ||
         key == "reasoning_content" || key == "refusal" || key == "output";
}

// True if the key marks a part of a message that is not text.
bool IsUncounted(std::string_view key) {
  return key == "image_url" || key == "input_image" || key == "image" ||
         key == "image_embeds" || key == "input_audio" || key == "audio_url" ||
         key == "video_url" || key == "file" || key == "source";
}

error_code CountText(ondemand::value value, int level, RequestFacts* facts);

error_code CountArray(ondemand::value value, int level, RequestFacts* facts) {
  ondemand::array array;
  if (const error_code e = value.get_array().get(array)) return e;
  for (auto element : array) {
    ondemand::value v;
    if (const error_code e = element.get(v)) return e;
    if (const error_code e = CountText(v, level + 1, facts)) return e;
  }
  return simdjson::SUCCESS;
}

error_code CountObject(ondemand::value value, int level, RequestFacts* facts) {
  ondemand::object object;
  if (const error_code e = value.get_object().get(object)) return e;
  for (auto field : object) {
    std::string_view key;
    if (const error_code e = field.unescaped_key().get(key)) return e;
    ondemand::value v;
    if (const error_code e = field.value().get(v)) return e;
    facts->has_uncounted |= IsUncounted(key);
    if (!IsText(key)) continue;
    if (const error_code e = CountText(v, level + 1, facts)) return e;
  }
  return simdjson::SUCCESS;
}

// Counts a value: strings as text, numbers as token ids, objects by the fields
// that chat templates print. Images and audio are not counted, since their
// bytes do not show how many tokens they have.
error_code CountText(ondemand::value value, int level, RequestFacts* facts) {
  if (level > kMostLevels) return simdjson::SUCCESS;
  ondemand::json_type type;
  if (const error_code e = value.type().get(type)) return e;
  switch (type) {
    case ondemand::json_type::string:
      // With its quotes.
      facts->text_bytes += value.raw_json_token().size() - 2;
      facts->prefix.Add(ToView(value.raw_json_token()));
      return simdjson::SUCCESS;
    case ondemand::json_type::number:
      ++facts->prompt_tokens;
      facts->prefix.Add(ToView(value.raw_json_token()));
      return simdjson::SUCCESS;
    case ondemand::json_type::array:
      return CountArray(value, level, facts);
    case ondemand::json_type::object:
      return CountObject(value, level, facts);
    default:
      return simdjson::SUCCESS;
  }
}

// Counts the JSON text of a list or an object as it is written.
template <typename Container>
error_code CountWritten(simdjson::simdjson_result<Container> written,
                        RequestFacts* facts) {
  Container container;
  if (const error_code e = std::move(written).get(container)) return e;
  std::string_view raw;
  if (const error_code e = container.raw_json().get(raw)) return e;
  facts->text_bytes += raw.size();
  facts->prefix.Add(ToView(raw));
  return simdjson::SUCCESS;
}

// Counts any value in the form in which a chat template prints it as JSON.
error_code CountJson(ondemand::value value, RequestFacts* facts) {
  ondemand::json_type type;
  if (const error_code e = value.type().get(type)) return e;
  if (type == ondemand::json_type::array) {
    return CountWritten(value.get_array(), facts);
  }
  if (type == ondemand::json_type::object) {
    return CountWritten(value.get_object(), facts);
  }
  return CountText(value, 0, facts);
}

// Counts one or several prompts. One prompt is a text, a list of token ids or a
// list of messages. Several are a list of texts, of lists of ids or of chats.
error_code CountPrompts(ondemand::value value, Walk* walk) {
  ondemand::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) {
    return CountText(value, 0, &walk->facts);
  }
  uint64_t prompts = 0;
  for (auto element : array) {
    ondemand::value v;
    if (const error_code e = element.get(v)) return e;
    ondemand::json_type type;
    if (const error_code e = v.type().get(type)) return e;
    prompts += type == ondemand::json_type::array ||
               type == ondemand::json_type::string;
    if (const error_code e = CountText(v, 1, &walk->facts)) return e;
  }
  walk->prompts = std::max<uint64_t>(prompts, 1);
  return simdjson::SUCCESS;
}

error_code ReadSampling(ondemand::value value, Walk* walk);

error_code ReadNumber(ondemand::value value, uint64_t* number) {
  uint64_t n = 0;
  const error_code e = value.get_uint64().get(n);
  if (e == simdjson::SUCCESS) *number = n;
  return Lenient(e);
}

error_code ReadModel(ondemand::value value, Walk* walk) {
  std::string_view token = value.raw_json_token();
  std::string_view name;
  const error_code e = value.get_string().get(name);
  if (e != simdjson::SUCCESS) return Lenient(e);
  // Cuts the token, which extends to the beginning of the next one.
  token = token.substr(0, token.rfind('"') + 1);
  walk->facts.model = std::string(name);
  walk->facts.model_at = static_cast<size_t>(token.data() - walk->body);
  walk->facts.model_bytes = token.size();
  return simdjson::SUCCESS;
}

error_code ReadField(std::string_view key, ondemand::value value, Walk* walk) {
  RequestFacts& facts = walk->facts;
  if (key == "model") return ReadModel(value, walk);
  if (key == "background") {
    return Lenient(value.get_bool().get(facts.background));
  }
  if (key == "stream") return Lenient(value.get_bool().get(facts.stream));
  if (key == "max_tokens" || key == "max_completion_tokens" ||
      key == "max_output_tokens") {
    return ReadNumber(value, &walk->max_tokens);
  }
  if (key == "n") return ReadNumber(value, &walk->choices);
  facts.has_uncounted |=
      key == "previous_response_id" || key == "prompt_embeds";
  if (key == "prompt" || key == "messages") return CountPrompts(value, walk);
  if (key == "input" || key == "instructions" || key == "system" ||
      key == "token_ids" || key == "query" || key == "items") {
    return CountText(value, 0, &facts);
  }
  if (key == "tools" || key == "state" || key == "questions") {
    return CountJson(value, &facts);
  }
  if (key == "sampling_params") return ReadSampling(value, walk);
  return simdjson::SUCCESS;
}

// Reads the sampling parameters of /inference/v1/generate.
error_code ReadSampling(ondemand::value value, Walk* walk) {
  ondemand::object object;
  if (const error_code e = value.get_object().get(object)) return Lenient(e);
  for (auto field : object) {
    std::string_view key;
    if (const error_code e = field.unescaped_key().get(key)) return e;
    ondemand::value v;
    if (const error_code e = field.value().get(v)) return e;
    error_code e = simdjson::SUCCESS;
    if (key == "max_tokens") e = ReadNumber(v, &walk->max_tokens);
    if (key == "n") e = ReadNumber(v, &walk->choices);
    if (e) return e;
  }
  return simdjson::SUCCESS;
}

error_code ReadObject(ondemand::document* document, Walk* walk) {
  ondemand::object object;
  if (const error_code e = document->get_object().get(object)) return e;
  for (auto field : object) {
    std::string_view key;
    if (const error_code e = field.unescaped_key().get(key)) return e;
    ondemand::value value;
    if (const error_code e = field.value().get(value)) return e;
    if (const error_code e = ReadField(key, value, walk)) return e;
  }
  // Nothing may follow the object in the body.
  const bool at_end =
      document->current_location().error() == simdjson::OUT_OF_BOUNDS;
  return at_end ? simdjson::SUCCESS : simdjson::TAPE_ERROR;
}

uint32_t Saturated(uint64_t n) {
  return static_cast<uint32_t>(std::min<uint64_t>(n, UINT32_MAX));
}

uint32_t AllChoices(const Walk& walk) {
  const uint64_t choices = std::clamp<uint64_t>(walk.choices, 1, 1024) *
                           std::min<uint64_t>(walk.prompts, 1 << 20);
  return Saturated(uint64_t{Saturated(walk.max_tokens)} * choices);
}

// Returns the value of a field's parameter, like boundary="b"; empty if the
// field has none.
absl::string_view Parameter(absl::string_view field, absl::string_view name) {
  for (absl::string_view part : absl::StrSplit(field, ';')) {
    part = absl::StripAsciiWhitespace(part);
    if (!absl::StartsWithIgnoreCase(part, name)) continue;
    part.remove_prefix(name.size());
    if (!absl::ConsumePrefix(&part, "=")) continue;
    if (absl::ConsumePrefix(&part, "\"")) return part.substr(0, part.find('"'));
    return part;
  }
  return "";
}

// Returns the name of the form control that a part's head gives.
absl::string_view NameIn(absl::string_view head) {
  for (const absl::string_view line : absl::StrSplit(head, "\r\n")) {
    if (absl::StartsWithIgnoreCase(line, "content-disposition:")) {
      return Parameter(line, "name");
    }
  }
  return "";
}

void ReadPart(absl::string_view name, absl::string_view value, size_t at,
              RequestFacts* facts) {
  if (name == "model") {
    facts->model = std::string(value);
    facts->model_at = at;
    facts->model_bytes = value.size();
  }
  if (name == "stream") facts->stream = absl::EqualsIgnoreCase(value, "true");
  if (name == "prompt") facts->text_bytes += value.size();
  if (name == "max_completion_tokens" &&
      !absl::SimpleAtoi(value, &facts->max_tokens)) {
    facts->max_tokens = 0;  // for the engine to refuse
  }
}

}  // namespace

absl::StatusOr<RequestFacts> ReadFacts(std::string* body) {
  // The thread's parser reuses its buffers. A large body gets a separate
  // parser, since the buffers would permanently keep several times its size.
  static thread_local ondemand::parser of_thread;
  ondemand::parser of_body;
  ondemand::parser& parser = body->size() > kLargeBytes ? of_body : of_thread;
  body->reserve(body->size() + simdjson::SIMDJSON_PADDING);
  ondemand::document document;
  error_code e = parser.iterate(body->data(), body->size(), body->capacity())
                     .get(document);
  Walk walk{body->data()};
  if (e == simdjson::SUCCESS) e = ReadObject(&document, &walk);
  if (e != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the body is not a JSON object: ", simdjson::error_message(e)));
  }
  walk.facts.max_tokens = AllChoices(walk);
  return std::move(walk.facts);
}

void RenameModel(const std::string& model, bool is_form, RequestFacts* facts,
                 std::string* body) {
  const std::string written = is_form ? model : JsonQuote(model);
  body->replace(facts->model_at, facts->model_bytes, written);
  facts->model = model;
  facts->model_bytes = written.size();
}

bool IsForm(absl::string_view content_type) {
  return absl::StartsWithIgnoreCase(content_type, "multipart/form-data");
}

absl::StatusOr<RequestFacts> ReadFormFacts(absl::string_view content_type,
                                           absl::string_view body) {
  const char* const whole = body.data();
  const absl::string_view boundary = Parameter(content_type, "boundary");
  // Every boundary except the first has a line break in front of it.
  const std::string mark = absl::StrCat("\r\n--", boundary);
  const bool begins =
      !boundary.empty() && absl::ConsumePrefix(&body, mark.substr(2));
  RequestFacts facts;
  while (begins && !absl::StartsWith(body, "--")) {
    const size_t head_end = body.find("\r\n\r\n");
    const size_t end = head_end == absl::string_view::npos
                           ? head_end
                           : body.find(mark, head_end + 2);
    if (end == absl::string_view::npos) break;
    // If the content is empty, it shares its line break with the end of the
    // head.
    const size_t content = std::min(head_end + 4, end);
    const absl::string_view value = body.substr(content, end - content);
    ReadPart(NameIn(body.substr(0, head_end)), value,
             static_cast<size_t>(value.data() - whole), &facts);
    body.remove_prefix(end + mark.size());
  }
  if (begins && absl::StartsWith(body, "--")) return facts;
  return absl::InvalidArgumentError(
      "the body is not a whole multipart/form-data form with the boundary that "
      "its Content-Type names");
}

}  // namespace fineserve::proxy

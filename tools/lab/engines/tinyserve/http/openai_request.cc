#include "tools/lab/engines/tinyserve/http/openai_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace tinyserve {
namespace {

using nlohmann::json;

// Thrown within this file only.
struct Refused {
  ApiError error;
};

[[noreturn]] void Refuse(const std::string& message, const std::string& param) {
  throw Refused{{400, "BadRequestError", message, param}};
}

// Refuses a field with the error of vLLM's request model, which has a different
// type and puts "body." before the name.
[[noreturn]] void RefuseField(const std::string& name, const char* reason) {
  throw Refused{{400, "Bad Request",
                 "1 validation error:\n  {'loc': 'body." + name +
                     "', 'msg': '" + reason + "'}",
                 "body." + name}};
}

json ReadObject(std::string_view body) {
  json object = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) {
    throw Refused{{400, "Bad Request",
                   "1 validation error:\n  {'type': 'json_invalid', 'loc': "
                   "'body', 'msg': 'JSON decode error'}",
                   "body"}};
  }
  if (!object.is_object()) {
    throw Refused{{400, "Bad Request",
                   "1 validation error:\n  {'type': 'dict_type', 'loc': "
                   "'body', 'msg': 'Input should be a valid dictionary'}",
                   "body"}};
  }
  return object;
}

// Null and absent are the same, as in Python.
const json* Field(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool Flag(const json& object, const char* name) {
  const json* value = Field(object, name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) RefuseField(name, "Input should be a boolean");
  return value->get<bool>();
}

std::optional<int64_t> Integer(const json& object, const char* name,
                               int64_t least) {
  const json* value = Field(object, name);
  if (value == nullptr) return {};
  // A number above 2^63 would turn negative.
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() &&
       value->get<uint64_t>() > uint64_t{INT64_MAX})) {
    RefuseField(name, "Input should be a valid integer");
  }
  const auto number = value->get<int64_t>();
  if (number < least) {
    Refuse(std::string(name) + " must be at least " + std::to_string(least) +
               ", got " + std::to_string(number) + ".",
           name);
  }
  return number;
}

std::string String(const json& value, const std::string& name) {
  if (!value.is_string()) RefuseField(name, "Input should be a valid string");
  return value.get<std::string>();
}

void CheckModel(const json& object, const ModelCard& model) {
  const json* value = Field(object, "model");
  if (value == nullptr) return;
  const std::string name = String(*value, "model");
  if (name.empty() || name == model.name) return;
  throw Refused{{404, "NotFoundError",
                 "The model `" + name +
                     "` does not exist. Valid aliases: " + model.name + ".",
                 "model"}};
}

bool IsEmpty(const json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_structured() || value.is_string()) && value.empty()) ||
         value == json("");
}

// Refuses parameters that would change the answer in ways that this engine does
// not have.
void CheckSupported(const json& object) {
  for (const char* name :
       {"stop", "stop_token_ids", "logprobs", "prompt_logprobs", "echo",
        "suffix", "tools", "response_format", "structured_outputs",
        "use_beam_search", "prompt_embeds", "truncate_prompt_tokens",
        "return_token_ids"}) {
    const json* value = Field(object, name);
    if (value == nullptr || IsEmpty(*value)) continue;
    if (*value == json{{"type", "text"}}) continue;  // of response_format
    Refuse(std::string(name) + " is not supported by this engine.", name);
  }
  for (const char* name : {"n", "best_of"}) {
    if (Integer(object, name, 1).value_or(1) == 1) continue;
    Refuse(std::string(name) + " other than 1 is not supported by this engine.",
           name);
  }
}

Token ReadToken(const json& value) {
  if (!value.is_number_unsigned()) {
    RefuseField("prompt", "Input should be a valid string or list of integers");
  }
  const auto id = value.get<uint64_t>();
  if (id >= kVocabulary) {
    Refuse("Token id " + std::to_string(id) + " is out of vocabulary",
           "prompt");
  }
  return static_cast<Token>(id);
}

std::vector<Token> ReadPrompt(const json& object) {
  const json* prompt = Field(object, "prompt");
  if (prompt == nullptr || IsEmpty(*prompt)) {
    Refuse("Either prompt or prompt_embeds must be provided and non-empty.",
           "prompt");
  }
  // A list that contains one prompt means that prompt.
  if (prompt->is_array() && !prompt->front().is_number()) {
    if (prompt->size() > 1) {
      Refuse("several prompts are not supported by this engine.", "prompt");
    }
    prompt = &prompt->front();
  }
  if (!prompt->is_array()) return Tokenise(String(*prompt, "prompt"));
  std::vector<Token> tokens;
  tokens.reserve(prompt->size());
  for (const json& token : *prompt) tokens.push_back(ReadToken(token));
  return tokens;
}

// Accepts a string, or a list of text parts.
std::string ReadContent(const json& message) {
  const json* content = Field(message, "content");
  if (content == nullptr) return "";
  if (!content->is_array()) return String(*content, "messages.content");
  std::string text;
  for (const json& part : *content) {
    if (!part.is_object() || part.value("type", json()) != "text" ||
        !part.contains("text")) {
      Refuse("only text parts are supported by this engine.", "messages");
    }
    if (!text.empty()) text += "\n";
    text += String(part["text"], "messages.content.text");
  }
  return text;
}

std::vector<Token> ReadMessages(const json& object) {
  const json* list = Field(object, "messages");
  if (list == nullptr) RefuseField("messages", "Field required");
  if (!list->is_array() || list->empty()) {
    RefuseField("messages", "Input should be a valid list with a message");
  }
  std::vector<Message> messages;
  for (const json& message : *list) {
    if (!message.is_object() || Field(message, "role") == nullptr) {
      RefuseField("messages.role", "Field required");
    }
    messages.push_back(
        {String(message["role"], "messages.role"), ReadContent(message)});
  }
  return Tokenise(ChatPrompt(messages));
}

std::string ContextText(const ModelCard& model) {
  return "This model's maximum context length is " +
         std::to_string(model.most_tokens) + " tokens. However, ";
}

// Returns the number asked for, or what fits if that is less, as in vLLM.
uint32_t MostTokens(const json& object, Endpoint endpoint, size_t prompt_tokens,
                    const ModelCard& model) {
  if (prompt_tokens == 0) Refuse("The prompt has no tokens.", "prompt");
  if (prompt_tokens >= model.most_tokens) {
    Refuse(ContextText(model) + "your prompt contains " +
               std::to_string(prompt_tokens) +
               " input tokens, which exceeds this limit even without any "
               "output tokens. Please reduce the length of the input prompt.",
           "input_tokens");
  }
  std::optional<int64_t> asked;
  if (endpoint == Endpoint::kChat) {
    asked = Integer(object, "max_completion_tokens", 1);
  }
  if (!asked) asked = Integer(object, "max_tokens", 1);
  if (!asked && endpoint == Endpoint::kCompletions) asked = 16;
  if (asked && *asked > model.most_tokens) {
    Refuse("max_tokens=" + std::to_string(*asked) +
               " cannot be greater than max_model_len=" +
               std::to_string(model.most_tokens) +
               ". Please request fewer output tokens.",
           "max_tokens");
  }
  const int64_t fits = model.most_tokens - static_cast<int64_t>(prompt_tokens);
  return static_cast<uint32_t>(std::min(asked.value_or(fits), fits));
}

void ReadStreaming(const json& object, Generation* to) {
  to->stream = Flag(object, "stream");
  const json* options = Field(object, "stream_options");
  if (options == nullptr) return;
  if (!to->stream) {
    Refuse("Stream options can only be defined when `stream=True`.",
           "stream_options");
  }
  if (!options->is_object()) {
    RefuseField("stream_options", "Input should be a valid dictionary");
  }
  to->include_usage = Flag(*options, "include_usage");
  to->continuous_usage =
      to->include_usage && Flag(*options, "continuous_usage_stats");
}

Generation Read(Endpoint endpoint, const json& object, const ModelCard& model) {
  CheckModel(object, model);
  CheckSupported(object);
  Generation generation;
  generation.prompt =
      endpoint == Endpoint::kChat ? ReadMessages(object) : ReadPrompt(object);
  Wanted& wanted = generation.wanted;
  wanted.most_tokens =
      MostTokens(object, endpoint, generation.prompt.size(), model);
  wanted.least_tokens = static_cast<uint32_t>(std::min<int64_t>(
      Integer(object, "min_tokens", 0).value_or(0), wanted.most_tokens));
  wanted.ignore_end = Flag(object, "ignore_eos");
  wanted.seed = Integer(object, "seed", INT64_MIN).value_or(0);
  ReadStreaming(object, &generation);
  return generation;
}

}  // namespace

std::variant<Generation, ApiError> ReadGeneration(Endpoint endpoint,
                                                  std::string_view body,
                                                  const ModelCard& model) {
  try {
    return Read(endpoint, ReadObject(body), model);
  } catch (Refused& refused) {
    return std::move(refused.error);
  }
}

std::variant<Tokenisation, ApiError> ReadTokenisation(std::string_view body,
                                                      const ModelCard& model) {
  try {
    const json object = ReadObject(body);
    CheckModel(object, model);
    Tokenisation result;
    result.with_words = Flag(object, "return_token_strs");
    const json* prompt = Field(object, "prompt");
    result.tokens = prompt == nullptr ? ReadMessages(object)
                                      : Tokenise(String(*prompt, "prompt"));
    return result;
  } catch (Refused& refused) {
    return std::move(refused.error);
  }
}

}  // namespace tinyserve

#include "tools/lab/engines/tinyserve/http/openai_shapes.h"

#include <initializer_list>
#include <nlohmann/json.hpp>

namespace tinyserve {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kVersion[] = "0.32.0+tinyserve";

Json FinishName(Finish finish) {
  if (finish == Finish::kNot) return nullptr;
  return finish == Finish::kStop ? "stop" : "length";
}

Json UsageObject(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"total_tokens", usage.prompt_tokens + usage.answer_tokens},
          {"completion_tokens", usage.answer_tokens}};
}

void AddNulls(std::initializer_list<const char*> names, Json* to) {
  for (const char* name : names) (*to)[name] = nullptr;
}

std::string Dump(const Json& json) {
  // Ids and model names come from the client; bytes in them that are not UTF-8
  // must not throw.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsChat(const Reply& reply) { return reply.endpoint == Endpoint::kChat; }

Json Head(const Reply& reply, const char* object) {
  return {{"id", reply.id}, {"object", object}, {"created", reply.created}};
}

// In chunks of the chat API the model comes after the choices.
Json Chunk(const Reply& reply, Json choices, const Usage* usage) {
  const bool chat = IsChat(reply);
  Json chunk = Head(reply, chat ? "chat.completion.chunk" : "text_completion");
  if (!chat) chunk["model"] = reply.model;
  chunk["choices"] = std::move(choices);
  if (chat) chunk["model"] = reply.model;
  if (usage != nullptr) chunk["usage"] = UsageObject(*usage);
  return chunk;
}

Json ChatChoice(Json delta, Finish finish) {
  return {{"index", 0},
          {"delta", std::move(delta)},
          {"logprobs", nullptr},
          {"finish_reason", FinishName(finish)}};
}

Json MessageObject(std::string_view text) {
  Json message = {{"role", "assistant"}, {"content", text}};
  AddNulls({"refusal", "annotations", "audio", "function_call", "reasoning"},
           &message);
  return message;
}

Json WholeUsage(const Usage& usage) {
  Json object = UsageObject(usage);
  AddNulls({"prompt_tokens_details", "completion_tokens_details"}, &object);
  return object;
}

Json CompletionChoice(std::string_view text, Finish finish) {
  Json choice = {{"index", 0}, {"text", text}};
  AddNulls({"logprobs"}, &choice);
  choice["finish_reason"] = FinishName(finish);
  AddNulls({"stop_reason"}, &choice);
  return choice;
}

Json WholeChoice(const Reply& reply, std::string_view text, Finish finish) {
  if (!IsChat(reply)) {
    Json choice = CompletionChoice(text, finish);
    AddNulls(
        {"token_ids", "prompt_logprobs", "prompt_token_ids", "routed_experts"},
        &choice);
    return choice;
  }
  Json choice = {{"index", 0}, {"message", MessageObject(text)}};
  AddNulls({"logprobs"}, &choice);
  choice["finish_reason"] = FinishName(finish);
  AddNulls({"stop_reason", "token_ids", "routed_experts"}, &choice);
  return choice;
}

}  // namespace

std::string WholeAnswer(const Reply& reply, std::string_view text,
                        Finish finish, const Usage& usage) {
  Json whole =
      Head(reply, IsChat(reply) ? "chat.completion" : "text_completion");
  whole["model"] = reply.model;
  whole["choices"] = Json::array({WholeChoice(reply, text, finish)});
  AddNulls({"service_tier", "system_fingerprint"}, &whole);
  whole["usage"] = WholeUsage(usage);
  if (IsChat(reply)) {
    AddNulls({"prompt_logprobs", "prompt_token_ids", "prompt_text"}, &whole);
  }
  AddNulls({"kv_transfer_params", "ec_transfer_params", "metrics"}, &whole);
  return Dump(whole);
}

std::string RoleChunk(const Reply& reply, const Usage* usage) {
  const Json delta = {{"role", "assistant"}, {"content", ""}};
  Json chunk =
      Chunk(reply, Json::array({ChatChoice(delta, Finish::kNot)}), usage);
  AddNulls({"prompt_token_ids", "prompt_text"}, &chunk);
  return Dump(chunk);
}

std::string TokenChunk(const Reply& reply, std::string_view text, Finish finish,
                       const Usage* usage) {
  Json choice;
  if (IsChat(reply)) {
    choice = ChatChoice({{"content", text}}, finish);
    if (finish != Finish::kNot) AddNulls({"stop_reason"}, &choice);
  } else {
    choice = CompletionChoice(text, finish);
    AddNulls({"prompt_token_ids"}, &choice);
  }
  AddNulls({"token_ids"}, &choice);
  return Dump(Chunk(reply, Json::array({std::move(choice)}), usage));
}

std::string UsageChunk(const Reply& reply, const Usage& usage) {
  return Dump(Chunk(reply, Json::array(), &usage));
}

std::string Event(std::string_view json) {
  std::string event = "data: ";
  event += json;
  return event += "\n\n";
}

std::string ErrorBody(const ApiError& error) {
  Json object = {{"message", error.message}, {"type", error.type}};
  if (error.param.empty()) {
    AddNulls({"param"}, &object);
  } else {
    object["param"] = error.param;
  }
  object["code"] = error.status;
  return Dump({{"error", std::move(object)}});
}

std::string ModelList(const ModelCard& model, int64_t created) {
  const Json card = {{"id", model.name},
                     {"object", "model"},
                     {"created", created},
                     {"owned_by", "vllm"},
                     {"root", model.name},
                     {"parent", nullptr},
                     {"max_model_len", model.most_tokens},
                     {"permission", Json::array()}};
  return Dump({{"object", "list"}, {"data", Json::array({card})}});
}

std::string TokenList(const Tokenisation& tokenisation,
                      const ModelCard& model) {
  Json list = {{"count", tokenisation.tokens.size()},
               {"max_model_len", model.most_tokens},
               {"tokens", tokenisation.tokens}};
  list["token_strs"] = nullptr;
  if (tokenisation.with_words) {
    list["token_strs"] = Json::array();
    for (const Token token : tokenisation.tokens) {
      list["token_strs"].push_back(Word(token));
    }
  }
  return Dump(list);
}

std::string VersionBody() { return Dump({{"version", kVersion}}); }

}  // namespace tinyserve

// vLLM 0.32.0's output for the same answers: its response models were filled
// with these values and dumped as its server dumps them (pydantic's
// model_dump_json; chunks with exclude_unset), recorded once.

#include "tools/lab/engines/tinyserve/http/openai_shapes.h"

#include <gtest/gtest.h>

namespace tinyserve {
namespace {

const Reply kTextReply = {Endpoint::kCompletions, "x", 1, "m"};
const Reply kChatReply = {Endpoint::kChat, "x", 1, "m"};
constexpr Usage kUsage = {3, 2};

TEST(OpenaiShapesTest, WholeCompletion) {
  EXPECT_EQ(WholeAnswer(kTextReply, "t", Finish::kLength, kUsage),
            R"({"id":"x","object":"text_completion","created":1,"model":"m",)"
            R"("choices":[{"index":0,"text":"t","logprobs":null,)"
            R"("finish_reason":"length","stop_reason":null,"token_ids":null,)"
            R"("prompt_logprobs":null,"prompt_token_ids":null,)"
            R"("routed_experts":null}],"service_tier":null,)"
            R"("system_fingerprint":null,"usage":{"prompt_tokens":3,)"
            R"("total_tokens":5,"completion_tokens":2,)"
            R"("prompt_tokens_details":null,"completion_tokens_details":null},)"
            R"("kv_transfer_params":null,"ec_transfer_params":null,)"
            R"("metrics":null})");
}

TEST(OpenaiShapesTest, WholeChat) {
  EXPECT_EQ(
      WholeAnswer(kChatReply, "c", Finish::kStop, kUsage),
      R"({"id":"x","object":"chat.completion","created":1,"model":"m",)"
      R"("choices":[{"index":0,"message":{"role":"assistant","content":"c",)"
      R"("refusal":null,"annotations":null,"audio":null,)"
      R"("function_call":null,"reasoning":null},"logprobs":null,)"
      R"("finish_reason":"stop","stop_reason":null,"token_ids":null,)"
      R"("routed_experts":null}],"service_tier":null,)"
      R"("system_fingerprint":null,"usage":{"prompt_tokens":3,)"
      R"("total_tokens":5,"completion_tokens":2,)"
      R"("prompt_tokens_details":null,"completion_tokens_details":null},)"
      R"("prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,)"
      R"("kv_transfer_params":null,"ec_transfer_params":null,)"
      R"("metrics":null})");
}

TEST(OpenaiShapesTest, CompletionChunks) {
  EXPECT_EQ(TokenChunk(kTextReply, "t", Finish::kNot, nullptr),
            R"({"id":"x","object":"text_completion","created":1,"model":"m",)"
            R"("choices":[{"index":0,"text":"t","logprobs":null,)"
            R"("finish_reason":null,"stop_reason":null,)"
            R"("prompt_token_ids":null,"token_ids":null}]})");
  EXPECT_EQ(UsageChunk(kTextReply, kUsage),
            R"({"id":"x","object":"text_completion","created":1,"model":"m",)"
            R"("choices":[],"usage":{"prompt_tokens":3,"total_tokens":5,)"
            R"("completion_tokens":2}})");
}

TEST(OpenaiShapesTest, ChatChunks) {
  EXPECT_EQ(RoleChunk(kChatReply, nullptr),
            R"({"id":"x","object":"chat.completion.chunk","created":1,)"
            R"("choices":[{"index":0,"delta":{"role":"assistant",)"
            R"("content":""},"logprobs":null,"finish_reason":null}],)"
            R"("model":"m","prompt_token_ids":null,"prompt_text":null})");
  EXPECT_EQ(TokenChunk(kChatReply, "w", Finish::kNot, nullptr),
            R"({"id":"x","object":"chat.completion.chunk","created":1,)"
            R"("choices":[{"index":0,"delta":{"content":"w"},)"
            R"("logprobs":null,"finish_reason":null,"token_ids":null}],)"
            R"("model":"m"})");
  EXPECT_EQ(TokenChunk(kChatReply, "w", Finish::kLength, nullptr),
            R"({"id":"x","object":"chat.completion.chunk","created":1,)"
            R"("choices":[{"index":0,"delta":{"content":"w"},)"
            R"("logprobs":null,"finish_reason":"length","stop_reason":null,)"
            R"("token_ids":null}],"model":"m"})");
  EXPECT_EQ(UsageChunk(kChatReply, kUsage),
            R"({"id":"x","object":"chat.completion.chunk","created":1,)"
            R"("choices":[],"model":"m","usage":{"prompt_tokens":3,)"
            R"("total_tokens":5,"completion_tokens":2}})");
}

TEST(OpenaiShapesTest, Framing) {
  EXPECT_EQ(Event("{}"), "data: {}\n\n");
  EXPECT_EQ(kDoneEvent, "data: [DONE]\n\n");
}

TEST(OpenaiShapesTest, Error) {
  EXPECT_EQ(ErrorBody({404, "NotFoundError", "a \"b\"", "model"}),
            R"({"error":{"message":"a \"b\"","type":"NotFoundError",)"
            R"("param":"model","code":404}})");
  EXPECT_EQ(ErrorBody({400, "Bad Request", "m", ""}),
            R"({"error":{"message":"m","type":"Bad Request","param":null,)"
            R"("code":400}})");
}

TEST(OpenaiShapesTest, IdThatIsNoUtf8IsReplacedNotThrownOver) {
  const Reply reply = {Endpoint::kCompletions, "\xff", 1, "m"};
  EXPECT_NE(UsageChunk(reply, kUsage).find("\xef\xbf\xbd"), std::string::npos);
}

TEST(OpenaiShapesTest, TokenList) {
  const ModelCard model = {"m", 7};
  EXPECT_EQ(TokenList({{5, 6}, false}, model),
            R"({"count":2,"max_model_len":7,"tokens":[5,6],)"
            R"("token_strs":null})");
  EXPECT_EQ(TokenList({{5}, true}, model),
            R"({"count":1,"max_model_len":7,"tokens":[5],"token_strs":[")" +
                Word(5) + R"("]})");
}

}  // namespace
}  // namespace tinyserve

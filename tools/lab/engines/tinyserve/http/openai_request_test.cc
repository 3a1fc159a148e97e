#include "tools/lab/engines/tinyserve/http/openai_request.h"

#include <gmock/gmock.h>

namespace tinyserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const ModelCard kModel = {"llama", 100};

Generation Good(Endpoint endpoint, std::string_view body) {
  auto read = ReadGeneration(endpoint, body, kModel);
  if (const auto* error = std::get_if<ApiError>(&read)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<Generation>(std::move(read));
}

ApiError Bad(Endpoint endpoint, std::string_view body) {
  const auto read = ReadGeneration(endpoint, body, kModel);
  const auto* error = std::get_if<ApiError>(&read);
  EXPECT_NE(error, nullptr) << body;
  return error == nullptr ? ApiError{} : *error;
}

TEST(OpenaiRequestTest, CompletionHasVllmsDefaults) {
  const Generation g = Good(Endpoint::kCompletions, R"({"prompt": "a b c"})");
  EXPECT_EQ(g.prompt, Tokenise("a b c"));
  EXPECT_EQ(g.wanted.most_tokens, 16u);
  EXPECT_EQ(g.wanted.seed, 0);
  EXPECT_FALSE(g.wanted.ignore_end);
  EXPECT_FALSE(g.stream || g.include_usage || g.continuous_usage);
}

TEST(OpenaiRequestTest, ChatAnswersAsLongAsFits) {
  const Generation g = Good(Endpoint::kChat, R"({"model": "llama",
      "messages": [{"role": "user", "content": "a b"}]})");
  EXPECT_EQ(g.prompt, Tokenise("<|user|> a b <|assistant|>"));
  EXPECT_EQ(g.wanted.most_tokens, 96u);
}

TEST(OpenaiRequestTest, FieldsOfARequestAreRead) {
  const Generation g = Good(Endpoint::kChat, R"({"stream": true, "seed": -3,
      "messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                                {"type": "text", "text": "b"}]},
                   {"role": "assistant", "content": null}],
      "max_tokens": 9, "max_completion_tokens": 5, "min_tokens": 2,
      "ignore_eos": true, "temperature": 0.7, "top_p": 1, "user": "me", "n": 1,
      "stop": [], "logprobs": false, "response_format": {"type": "text"},
      "stream_options": {"include_usage": true,
                         "continuous_usage_stats": true}})");
  EXPECT_EQ(g.prompt, Tokenise("<|user|> a b <|assistant|> <|assistant|>"));
  EXPECT_EQ(g.wanted.most_tokens, 5u);
  EXPECT_EQ(g.wanted.least_tokens, 2u);
  EXPECT_EQ(g.wanted.seed, -3);
  EXPECT_TRUE(g.wanted.ignore_end && g.stream && g.include_usage &&
              g.continuous_usage);
}

TEST(OpenaiRequestTest, PromptsOfIdsAndListsOfOnePrompt) {
  EXPECT_THAT(Good(Endpoint::kCompletions, R"({"prompt": [1, 128255]})").prompt,
              ElementsAre(1, 128'255));
  EXPECT_THAT(Good(Endpoint::kCompletions, R"({"prompt": [[5, 6]]})").prompt,
              ElementsAre(5, 6));
  EXPECT_THAT(Good(Endpoint::kCompletions, R"({"prompt": ["a b"]})").prompt,
              SizeIs(2));
}

TEST(OpenaiRequestTest, AnswerIsCutToTheContext) {
  std::string prompt = "w";
  for (int i = 1; i < 90; ++i) prompt += " w";
  const Generation g =
      Good(Endpoint::kCompletions,
           R"({"max_tokens": 50, "prompt": ")" + prompt + "\"}");
  EXPECT_EQ(g.wanted.most_tokens, 10u);
}

struct Mistake {
  const char* name;
  Endpoint endpoint;
  const char* body;
  unsigned status;
  const char* type;
  const char* message;  // a part of it
};

class OpenaiMistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(OpenaiMistakeTest, IsRefusedByName) {
  const ApiError error = Bad(GetParam().endpoint, GetParam().body);
  EXPECT_EQ(error.status, GetParam().status);
  EXPECT_EQ(error.type, GetParam().type);
  EXPECT_THAT(error.message, HasSubstr(GetParam().message));
}

constexpr Endpoint kText = Endpoint::kCompletions;
constexpr Endpoint kChat = Endpoint::kChat;
const Mistake kMistakes[] = {
    {"NoJson", kText, "{\"prompt\":", 400, "Bad Request", "json_invalid"},
    {"NoUtf8", kText, "{\"prompt\": \"\xff\xfe\"}", 400, "Bad Request",
     "json_invalid"},
    {"Empty", kText, "", 400, "Bad Request", "json_invalid"},
    {"NoObject", kText, "[1]", 400, "Bad Request", "valid dictionary"},
    {"OtherModel", kText, R"({"model": "x", "prompt": "a"})", 404,
     "NotFoundError", "The model `x` does not exist."},
    {"NoPrompt", kText, R"({"model": "llama"})", 400, "BadRequestError",
     "Either prompt"},
    {"BlankPrompt", kText, R"({"prompt": "  "})", 400, "BadRequestError",
     "no tokens"},
    {"NumberAsPrompt", kText, R"({"prompt": 3})", 400, "Bad Request",
     "body.prompt"},
    {"TwoPrompts", kText, R"({"prompt": ["a", "b"]})", 400, "BadRequestError",
     "several prompts"},
    {"IdBeyondVocabulary", kText, R"({"prompt": [128256]})", 400,
     "BadRequestError", "out of vocabulary"},
    {"NegativeId", kText, R"({"prompt": [-1]})", 400, "Bad Request",
     "body.prompt"},
    {"NoMessages", kChat, R"({"model": "llama"})", 400, "Bad Request",
     "Field required"},
    {"MessageWithoutRole", kChat, R"({"messages": [{"content": "a"}]})", 400,
     "Bad Request", "body.messages.role"},
    {"Image", kChat,
     R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
     400, "BadRequestError", "only text"},
    {"NoTokens", kText, R"({"prompt": "a", "max_tokens": 0})", 400,
     "BadRequestError", "at least 1"},
    {"TokensAsText", kText, R"({"prompt": "a", "max_tokens": "5"})", 400,
     "Bad Request", "body.max_tokens"},
    {"TooManyTokens", kText, R"({"prompt": "a", "max_tokens": 101})", 400,
     "BadRequestError", "max_tokens=101 cannot be greater"},
    {"HugeNumber", kText, R"({"prompt": "a", "seed": 9223372036854775808})",
     400, "Bad Request", "body.seed"},
    {"TwoAnswers", kText, R"({"prompt": "a", "n": 2})", 400, "BadRequestError",
     "n other than 1"},
    {"Stop", kText, R"({"prompt": "a", "stop": ["x"]})", 400, "BadRequestError",
     "stop is not supported"},
    {"Tools", kChat,
     R"({"messages": [{"role": "user"}], "tools": [{"type": "function"}]})",
     400, "BadRequestError", "tools is not supported"},
    {"OptionsWithoutStream", kText,
     R"({"prompt": "a", "stream_options": {"include_usage": true}})", 400,
     "BadRequestError", "Stream options"},
};

INSTANTIATE_TEST_SUITE_P(All, OpenaiMistakeTest, ::testing::ValuesIn(kMistakes),
                         [](const auto& test) { return test.param.name; });

TEST(OpenaiRequestTest, PromptThatFillsTheContextIsTooLong) {
  std::string prompt = "w";
  for (int i = 1; i < 100; ++i) prompt += " w";
  const ApiError error =
      Bad(Endpoint::kCompletions, R"({"prompt": ")" + prompt + "\"}");
  EXPECT_EQ(error.status, 400u);
  EXPECT_THAT(error.message,
              HasSubstr("maximum context length is 100 tokens. However, your "
                        "prompt contains 100 input tokens"));
}

TEST(OpenaiRequestTest, TokenisationAgreesWithWhatIsGenerated) {
  const auto read = ReadTokenisation(
      R"({"messages": [{"role": "user", "content": "a b"}],
          "return_token_strs": true})",
      kModel);
  ASSERT_TRUE(std::holds_alternative<Tokenisation>(read));
  const auto& tokenisation = std::get<Tokenisation>(read);
  EXPECT_EQ(tokenisation.tokens,
            Good(Endpoint::kChat, R"({"messages": [{"role": "user",
                                      "content": "a b"}]})")
                .prompt);
  EXPECT_TRUE(tokenisation.with_words);
}

}  // namespace
}  // namespace tinyserve

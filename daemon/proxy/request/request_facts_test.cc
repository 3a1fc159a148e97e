#include "daemon/proxy/request/request_facts.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::proxy {
namespace {

absl::StatusOr<RequestFacts> Read(std::string body) { return ReadFacts(&body); }

struct Body {
  const char* name;
  const char* json;
  uint64_t text_bytes;
  uint32_t prompt_tokens;
  uint32_t max_tokens;
  bool stream;
};

class ReadFactsTable : public testing::TestWithParam<Body> {};

TEST_P(ReadFactsTable, Reads) {
  const absl::StatusOr<RequestFacts> facts = Read(GetParam().json);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->model, "m");
  EXPECT_EQ(facts->text_bytes, GetParam().text_bytes);
  EXPECT_EQ(facts->prompt_tokens, GetParam().prompt_tokens);
  EXPECT_EQ(facts->max_tokens, GetParam().max_tokens);
  EXPECT_EQ(facts->stream, GetParam().stream);
}

INSTANTIATE_TEST_SUITE_P(
    , ReadFactsTable,
    testing::Values(
        Body{"Prompt", R"({"model":"m","prompt":"hello"})", 5, 0, 0, false},
        Body{"Prompts", R"({"prompt":["ab","cde"],"model":"m"})", 5, 0, 0,
             false},
        Body{"TokenIds", R"({"model":"m","prompt":[1,2,3]})", 0, 3, 0, false},
        Body{"SeveralTokenIds", R"({"model":"m","prompt":[[1,2],[3]]})", 0, 3,
             0, false},
        Body{"Messages",
             R"({"model":"m","messages":[{"role":"user","content":"abc"},
                 {"role":"assistant","content":"de"}]})",
             5, 0, 0, false},
        Body{"PartsWithoutPictures",
             R"({"model":"m","messages":[{"role":"user","content":[
                 {"type":"text","text":"abcd"},
                 {"type":"image_url","image_url":{"url":"data:AAAA"}}]}]})",
             4, 0, 0, false},
        Body{"Tools", R"({"model":"m","prompt":"","tools":[{"a":1}]})", 9, 0, 0,
             false},
        Body{"StreamOfChoices",
             R"({"model":"m","stream":true,"max_tokens":8,"n":3})", 0, 0, 24,
             true},
        Body{"CompletionTokens", R"({"model":"m","max_completion_tokens":7})",
             0, 0, 7, false},
        Body{"AnswersToSeveralPrompts",
             R"({"model":"m","prompt":["ab","cde"],"max_tokens":8})", 5, 0, 16,
             false},
        Body{"AnswersToSeveralTokenLists",
             R"({"model":"m","prompt":[[1,2],[3]],"max_tokens":8})", 0, 3, 16,
             false},
        Body{"BatchOfChats",
             R"({"model":"m","max_tokens":8,"messages":[
                 [{"role":"user","content":"abc"}],
                 [{"role":"user","content":"d"},
                  {"role":"user","content":"e"}]]})",
             5, 0, 16, false},
        Body{"Response",
             R"({"model":"m","instructions":"ab","max_output_tokens":9,
                 "input":"cde"})",
             5, 0, 9, false},
        Body{"ResponseToItems",
             R"({"model":"m","input":[{"role":"user","content":[
                 {"type":"input_text","text":"abcd"},
                 {"type":"input_image","image_url":"data:AAAA"}]},
                 {"type":"function_call_output","output":"efg"}]})",
             7, 0, 0, false},
        Body{"AnthropicMessages",
             R"({"model":"m","max_tokens":5,"system":[{"type":"text",
                 "text":"ab"}],"messages":[{"role":"user","content":"cde"}]})",
             5, 0, 5, false},
        Body{"TokensInTokensOut",
             R"({"model":"m","token_ids":[1,2,3],
                 "sampling_params":{"temperature":1,"max_tokens":6,"n":2}})",
             0, 3, 12, false},
        Body{"Decision",
             R"({"model":"m","state":{"a":1},"questions":{"q":{}}})", 15, 0, 0,
             false},
        Body{"Scores", R"({"model":"m","query":"ab","items":["c","d"]})", 4, 0,
             0, false},
        Body{"NoMaximum", R"({"model":"m","max_tokens":null})", 0, 0, 0, false},
        Body{"HugeMaximum", R"({"model":"m","max_tokens":99999999999,"n":9})",
             0, 0, UINT32_MAX, false},
        Body{"LastOfEqualKeys", R"({"model":"x","model":"m"})", 0, 0, 0, false},
        Body{"EscapedKey", R"({"mod\u0065l":"m"})", 0, 0, 0, false},
        Body{"KeyInsideIsAnother", R"({"model":"m","x":{"model":"y"}})", 0, 0,
             0, false},
        Body{"Blanks", "\n {\"model\" : \"m\" } \n", 0, 0, 0, false}),
    [](const auto& info) { return info.param.name; });

TEST(ReadFactsTest, ChatsThatGoOnShareTheirBeginning) {
  const std::string history = R"({"role":"user","content":")" +
                              std::string(2 * PromptPrefix::kBlockBytes, 'x') +
                              R"("})";
  std::string first = R"({"model":"m","messages":[)" + history + "]}";
  std::string next =
      R"({"messages":[)" + history + R"(,{"role":"assistant","content":")" +
      std::string(PromptPrefix::kBlockBytes, 'y') + R"("}],"model":"m"})";
  const auto one = ReadFacts(&first), other = ReadFacts(&next);
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_EQ(one->prefix.blocks().size(), 2u);
  ASSERT_EQ(other->prefix.blocks().size(), 3u);
  EXPECT_EQ(other->prefix.blocks()[1], one->prefix.blocks()[1]);
}

TEST(ReadFactsTest, ModelIsRenamedWhereTheBodyNamesIt) {
  const struct {
    const char* before;
    const char* after;
  } kCases[] = {
      {R"({"model":"gpt","prompt":"gpt"})",
       R"({"model":"a\"b","prompt":"gpt"})"},
      {"{ \"prompt\" : 1 ,\n \"model\" : \"gpt\" \n , \"n\": 2 }",
       "{ \"prompt\" : 1 ,\n \"model\" : \"a\\\"b\" \n , \"n\": 2 }"},
      {R"({"model":"g\"p"})", R"({"model":"a\"b"})"},
      {R"({"model":"x","model":"gpt"})", R"({"model":"x","model":"a\"b"})"},
  };
  for (const auto& c : kCases) {
    std::string body = c.before;
    auto facts = ReadFacts(&body);
    ASSERT_TRUE(facts.ok()) << c.before;
    RenameModel("a\"b", /*is_form=*/false, &*facts, &body);
    EXPECT_EQ(body, c.after);
    EXPECT_EQ(ReadFacts(&body)->model, "a\"b");
  }
}

TEST(ReadFactsTest, OtherJsonIsRefused) {
  for (const char* bad :
       {"", " ", "[]", "1", "null", "\"x\"", "{", "}", "{\"model\"", "{\"a\":}",
        R"({"model":"m")", R"({"model":"m"} x)", R"({"model":"m"}{})",
        R"({"model":"m)", "{\"model\":\"\xff\"}",
        R"({"messages":[{"content":})", R"({"prompt":["a")",
        R"({"model" "m"})"}) {
    EXPECT_FALSE(Read(bad).ok()) << bad;
  }
}

TEST(ReadFactsTest, UncountedPartIsNoticed) {
  const auto has = [](std::string body) {
    const auto facts = ReadFacts(&body);
    return facts.ok() && facts->has_uncounted;
  };
  EXPECT_TRUE(
      has(R"({"messages":[{"role":"user","content":[{"type":"text",)"
          R"("text":"x"},{"type":"image_url","image_url":{"url":"d"}}]}]})"));
  EXPECT_TRUE(has(R"({"input":"x","previous_response_id":"r"})"));
  EXPECT_TRUE(
      has(R"({"messages":[{"content":[{"type":"image","source":{}}]}]})"));
  EXPECT_FALSE(has(R"({"messages":[{"role":"user","content":"image_url"}]})"));
}

TEST(ReadFactsTest, UnexpectedTypesAreLeftToTheEngine) {
  const auto facts = Read(
      R"({"model":7,"stream":"yes","max_tokens":-1,"n":1.5,"tools":{},"prompt":
         {"a":1}})");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->model, "");
  EXPECT_FALSE(facts->stream);
  EXPECT_EQ(facts->max_tokens, 0u);
}

TEST(ReadFactsTest, NestingWithoutEndIsBounded) {
  const std::string deep(500, '[');
  const std::string end(500, ']');
  EXPECT_TRUE(Read(R"({"model":"m","prompt":)" + deep + end + "}").ok());
  EXPECT_FALSE(Read(std::string(100'000, '[')).ok());
}

constexpr char kType[] = "multipart/form-data; boundary=\"b-1\"";

std::string Part(const std::string& fields, const std::string& content) {
  return "--b-1\r\n" + fields + "\r\n\r\n" + content + "\r\n";
}
std::string Field(const std::string& name, const std::string& value) {
  return Part("Content-Disposition: form-data; name=\"" + name + "\"", value);
}

TEST(FormFactsTest, FieldsThatCountAreReadAroundTheFile) {
  const std::string body =
      Part(
          "content-type: audio/wav\r\nContent-Disposition: form-data; "
          "name=\"file\"; filename=\"model\"",
          std::string("RIFF\0\r\n--b-\r\n", 14)) +
      Field("model", "whisper") + Field("prompt", "some words") +
      Field("stream", "true") + Field("max_completion_tokens", "40") +
      Field("language", "en") + "--b-1--\r\n";
  const auto facts = ReadFormFacts(kType, body);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->model, "whisper");
  EXPECT_TRUE(facts->stream);
  EXPECT_EQ(facts->max_tokens, 40u);
  EXPECT_EQ(facts->text_bytes, 10u);
}

TEST(FormFactsTest, BoundaryNeedsNoQuotesAndFieldsNoFile) {
  const auto facts =
      ReadFormFacts("Multipart/Form-Data;charset=utf-8; boundary=b-1",
                    Field("model", "m") + "--b-1--");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->model, "m");
  EXPECT_FALSE(facts->stream);
}

TEST(FormFactsTest, ModelIsRenamedWhereTheFormNamesIt) {
  std::string body = Field("prompt", "gpt") + Field("model", "gpt") + "--b-1--";
  auto facts = ReadFormFacts(kType, body);
  ASSERT_TRUE(facts.ok()) << facts.status();
  RenameModel("whisper", /*is_form=*/true, &*facts, &body);
  EXPECT_EQ(body,
            Field("prompt", "gpt") + Field("model", "whisper") + "--b-1--");
}

TEST(FormFactsTest, OtherBodyIsRefused) {
  for (const char* type : {"multipart/form-data", "multipart/form-data; x=y",
                           "multipart/form-data; boundary="}) {
    EXPECT_FALSE(ReadFormFacts(type, "--b-1--").ok()) << type;
  }
  for (const char* body : {"", "model=m", "--b-1", "--b-1\r\nno end",
                           "--b-1\r\nA: b\r\n\r\nno end"}) {
    EXPECT_FALSE(ReadFormFacts(kType, body).ok()) << body;
  }
}

TEST(FormFactsTest, FormsAreRecognisedAmongBodies) {
  EXPECT_TRUE(IsForm(kType));
  EXPECT_TRUE(IsForm("MULTIPART/form-data; boundary=x"));
  EXPECT_FALSE(IsForm("application/json"));
  EXPECT_FALSE(IsForm(""));
}

}  // namespace

}  // namespace fineserve::proxy

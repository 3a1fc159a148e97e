#include "daemon/proxy/request/form_facts.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::proxy {
namespace {

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

TEST(FormFactsTest, WhatIsNoFormIsRefused) {
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

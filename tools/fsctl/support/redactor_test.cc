#include "tools/fsctl/support/redactor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::fsctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RedactorTest, WhateverLooksLikeAKeyIsTakenOut) {
  const Redactor redactor({});
  for (const char* line :
       {"command = [\"vllm\", \"--api-key\", \"planted\", \"--port\", \"1\"]",
        "vllm serve m --api-key planted --port 1", "--hf-token=planted",
        "HF_TOKEN=planted", "\"api_key\": \"planted\",",
        "OPENAI_API_KEY: planted", "password = 'planted'",
        "Authorization: Bearer planted", "http://user:planted@host/x",
        "the key sk-planted-0123", "hf_planted0123"}) {
    const std::string text = redactor.Redacted(line);
    EXPECT_THAT(text, Not(HasSubstr("planted"))) << line;
    EXPECT_THAT(text, HasSubstr("[redacted]")) << line;
  }
}

TEST(RedactorTest, SettingsAreKept) {
  const Redactor redactor({""});
  for (const char* line :
       {"kv_token_bytes = 8192", "prompt_tokens = \"exact\"",
        "\"held_tokens\": 12,", "keys = \"/etc/fineserve/keys\"",
        "--max-num-batched-tokens 2048", "url = \"http://127.0.0.1:9001\"",
        "per_token_us = 110"}) {
    EXPECT_EQ(redactor.Redacted(line), line);
  }
}

TEST(RedactorTest, KnownSecretsAreTakenOutWherever) {
  const Redactor redactor({"alpha", "alphabet soup"});
  EXPECT_EQ(redactor.Redacted("a:alphabet soup\nb=alpha;c"),
            "a:[redacted]\nb=[redacted];c");
}

TEST(RedactorTest, LongLinesAreCutBeforeTheyAreSearched) {
  const Redactor redactor({});
  EXPECT_LT(redactor.Redacted(std::string(1 << 20, 'x')).size(), 3000u);
}

TEST(RedactorTest, LogKeepsWhatCannotHoldAPrompt) {
  const std::string tail = LogTail(
      "INFO 11-23 Received request cmpl-1: prompt: 'planted'\n"
      "got: planted\n"
      "ERROR 11-23 dump: prompt_token_ids=[1], 'planted'\n"
      "WARNING 11-23 the cache is nearly full\n"
      "Traceback (most recent call last):\n"
      "  File \"engine.py\", line 7, in step\n"
      "2026-11-23 fineserved info: serving 8 slabs\n",
      100);
  EXPECT_THAT(tail, Not(HasSubstr("planted")));
  EXPECT_THAT(tail, HasSubstr("3 of 7 lines are left out"));
  for (const char* kept :
       {"nearly full", "Traceback", "engine.py", "8 slabs"}) {
    EXPECT_THAT(tail, HasSubstr(kept));
  }
}

TEST(RedactorTest, LogKeepsTheLastLines) {
  std::string log;
  for (int i = 0; i < 50; ++i) log += "ERROR " + std::to_string(i) + "\n";
  const std::string tail = LogTail(log, 3);
  EXPECT_THAT(tail, HasSubstr("47 of 50"));
  EXPECT_THAT(tail, HasSubstr("ERROR 47\nERROR 48\nERROR 49\n"));
  EXPECT_THAT(tail, Not(HasSubstr("ERROR 46")));
}

}  // namespace
}  // namespace fineserve::fsctl

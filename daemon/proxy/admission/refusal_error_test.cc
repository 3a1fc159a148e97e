#include "daemon/proxy/admission/refusal_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/base/http/head.h"

namespace fineserve::proxy {
namespace {

using ::testing::HasSubstr;

TEST(RefusalErrorTest, AnswerCarriesWhatClientsReactTo) {
  Verdict verdict;
  verdict.refusal = Refusal::kDeadline;
  verdict.why = "late";
  verdict.retry_after_ms = 1500;
  verdict.predicted_ttft_ms = 2000;
  const std::string text = LocalAnswerText(ErrorAnswer(RefusalError(verdict)),
                                           false, "id", /*keep_alive=*/true);
  EXPECT_THAT(text, HasSubstr("HTTP/1.1 429 Too Many Requests\r\n"));
  EXPECT_THAT(text, HasSubstr("retry-after: 2\r\nretry-after-ms: 1500\r\n"));
  EXPECT_THAT(text, HasSubstr("x-fineserve-reason: slo_unreachable\r\n"));
  EXPECT_THAT(text, HasSubstr("x-fineserve-predicted-ttft-ms: 2000\r\n"));
  EXPECT_THAT(text,
              HasSubstr("\r\n\r\n{\"error\":{\"message\":\"late\",\"type\":"
                        "\"rate_limit_error\",\"param\":null,\"code\":"
                        "\"slo_unreachable\",\"predicted_ttft_ms\":2000}}"));
}

}  // namespace
}  // namespace fineserve::proxy

#include "tools/lab/stage/figures.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace fineserve::stage {

int64_t FigureIn(const std::string& answer, const std::string& name) {
  const std::string key = " " + name + "=";
  const size_t at = (" " + answer).find(key);
  EXPECT_NE(at, std::string::npos) << "no " << name << " in: " << answer;
  if (at == std::string::npos) return -1;
  return strtoll(answer.c_str() + at + key.size() - 1, nullptr, 10);
}

double MetricOf(const std::string& page, const std::string& sample) {
  const std::string text = "\n" + page;
  const std::string begin = "\n" + sample;
  for (size_t at = text.find(begin); at != std::string::npos;
       at = text.find(begin, at + 1)) {
    const char next = text[at + begin.size()];
    if (next != ' ' && next != '{') continue;
    const size_t end = text.find('\n', at + 1);
    return strtod(text.c_str() + text.rfind(' ', end) + 1, nullptr);
  }
  return -1;
}

}  // namespace fineserve::stage

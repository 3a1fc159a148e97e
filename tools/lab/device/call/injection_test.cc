#include "tools/lab/device/call/injection.h"

#include <gtest/gtest.h>

#include <vector>

namespace fineserve::emucuda {
namespace {

std::vector<CUresult> Calls(Injection& injection, Entry entry, int count) {
  std::vector<CUresult> results;
  for (int i = 0; i < count; ++i) {
    results.push_back(injection.NextFailure(entry));
  }
  return results;
}

TEST(InjectionTest, NthCallFailsOnce) {
  Injection injection;
  ASSERT_TRUE(injection.SetFailures("cuMemMap@2=999"));
  EXPECT_EQ(
      Calls(injection, Entry::cuMemMap, 3),
      (std::vector<CUresult>{CUDA_SUCCESS, CUDA_ERROR_UNKNOWN, CUDA_SUCCESS}));
  EXPECT_EQ(Calls(injection, Entry::cuMemUnmap, 2),
            (std::vector<CUresult>{CUDA_SUCCESS, CUDA_SUCCESS}));
}

TEST(InjectionTest, CountingStartsWithTheRule) {
  Injection injection;
  Calls(injection, Entry::cuMemMap, 5);
  ASSERT_TRUE(injection.SetFailures("cuMemMap@1=2"));
  EXPECT_EQ(injection.NextFailure(Entry::cuMemMap), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(InjectionTest, NameMeansEveryVersion) {
  Injection injection;
  ASSERT_TRUE(injection.SetFailures("cuCtxSynchronize@*=719"));
  // A symbol that is also a name refers only to that symbol.
  EXPECT_EQ(injection.NextFailure(Entry::cuCtxSynchronize),
            CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(injection.NextFailure(Entry::cuCtxSynchronize_v2), CUDA_SUCCESS);
  ASSERT_TRUE(injection.SetFailures("cuMemAlloc@*=2"));
  EXPECT_EQ(injection.NextFailure(Entry::cuMemAlloc_v2),
            CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(InjectionTest, MalformedRulesAreRefused) {
  Injection injection;
  for (const char* rules :
       {"cuMemMap", "cuMemMap@", "cuMemMap@1", "cuMemMap@0=2", "cuMemMap@1=0",
        "cuMemMap@1=x", "cuNoSuch@1=2", "@1=2", "cuMemMap@1=2,,x"}) {
    EXPECT_FALSE(injection.SetFailures(rules)) << rules;
  }
  for (const char* rules :
       {"cuMemMap", "cuMemMap=", "cuMemMap=-1", "=5", "cuMemMap=99999999999"}) {
    EXPECT_FALSE(injection.SetLatencies(rules)) << rules;
  }
  EXPECT_TRUE(injection.SetFailures(""));
  EXPECT_TRUE(injection.SetLatencies("cuMemCreate=193,cuMemSetAccess=36"));
  EXPECT_TRUE(injection.SetLatencies("*=7"));
}

}  // namespace
}  // namespace fineserve::emucuda

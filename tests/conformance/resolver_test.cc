// cuGetProcAddress: names and versions.

#include <gtest/gtest.h>

#include <cstring>

#include "tests/conformance/isolation.h"
#include "tests/conformance/runtime_requests.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

struct Answer {
  CUresult result;
  void* function;
  CUdriverProcAddressQueryResult status;
};

Answer Ask(const char* name, int version, uint64_t flags = 0) {
  Answer answer = {CUDA_ERROR_UNKNOWN, &answer, CU_GET_PROC_ADDRESS_SUCCESS};
  answer.result = Cuda().cuGetProcAddress_v2(name, &answer.function, version,
                                             flags, &answer.status);
  return answer;
}

template <typename Function>
void* Untyped(Function function) {
  return reinterpret_cast<void*>(function);
}

int DriverVersion() {
  int version = 0;
  EXPECT_EQ(Cuda().cuDriverGetVersion(&version), CUDA_SUCCESS);
  return version;
}

CONFORMANCE_TEST(Resolver, WorksBeforeInit) {
  EXPECT_EQ(Ask("cuInit", 2000).result, CUDA_SUCCESS);
}

CONFORMANCE_TEST(Resolver, UnknownNameIsNotFound) {
  for (const char* name : {"", "cuNoSuchFunction", "cuMemAlloc_v2x"}) {
    const Answer answer = Ask(name, 12000);
    EXPECT_EQ(answer.result, CUDA_SUCCESS) << name;
    EXPECT_EQ(answer.status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) << name;
    EXPECT_EQ(answer.function, nullptr) << name;
  }
}

CONFORMANCE_TEST(Resolver, VersionBelowTheFirstIsNotSufficient) {
  const Answer answer = Ask("cuMemCreate", 10010);
  EXPECT_EQ(answer.result, CUDA_SUCCESS);
  EXPECT_EQ(answer.status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(answer.function, nullptr);
}

CONFORMANCE_TEST(Resolver, WithoutAStatusUnknownNameIsNull) {
  void* function = &function;
  EXPECT_EQ(Cuda().cuGetProcAddress_v2("cuNoSuchFunction", &function, 12000, 0,
                                       nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(function, nullptr);
}

CONFORMANCE_TEST(Resolver, VersionAboveTheDriversIsRefused) {
  EXPECT_EQ(Ask("cuInit", DriverVersion() + 10).result,
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Resolver, NullArgumentsAreRefused) {
  EMULATED_ONLY("what a null pointer does");
  void* function = nullptr;
  EXPECT_EQ(Cuda().cuGetProcAddress_v2(nullptr, &function, 12000, 0, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuGetProcAddress_v2("cuInit", nullptr, 12000, 0, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Resolver, PerThreadFlagFallsBackToThePlainFunction) {
  const Answer answer =
      Ask("cuMemCreate", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  EXPECT_EQ(answer.result, CUDA_SUCCESS);
  EXPECT_NE(answer.function, nullptr);
}

CONFORMANCE_TEST(Resolver, ResolvedFunctionsWork) {
  const Answer answer = Ask("cuDriverGetVersion", 2020);
  ASSERT_EQ(answer.result, CUDA_SUCCESS);
  int version = 0;
  const auto function =
      reinterpret_cast<decltype(Cuda().cuDriverGetVersion)>(answer.function);
  EXPECT_EQ(function(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, DriverVersion());
}

CONFORMANCE_TEST(Resolver, EveryMemoryRequestOfTheRuntimeIsAnswered) {
  for (const RuntimeRequest& request : kRuntimeMemoryRequests) {
    if (request.version > DriverVersion()) continue;
    const Answer answer = Ask(request.name, request.version, request.flags);
    EXPECT_EQ(answer.result, CUDA_SUCCESS)
        << request.name << " " << request.version << " " << request.flags;
    EXPECT_NE(answer.function, nullptr) << request.name;
  }
}

// A real driver may resolve to another pointer than it exports, so only the
// emulated driver's pointers are compared.
CONFORMANCE_TEST(Resolver, NewestVersionNotAboveTheAskedOneIsChosen) {
  if (!OnEmulatedDevice()) {
    GTEST_SKIP() << "a real driver may resolve to another pointer than dlsym";
  }
  const EntryPoints& cuda = Cuda();
  EXPECT_EQ(Ask("cuDeviceGetUuid", 9020).function,
            Untyped(cuda.cuDeviceGetUuid));
  EXPECT_EQ(Ask("cuDeviceGetUuid", 11030).function,
            Untyped(cuda.cuDeviceGetUuid));
  EXPECT_EQ(Ask("cuDeviceGetUuid", 11040).function,
            Untyped(cuda.cuDeviceGetUuid_v2));
  EXPECT_EQ(Ask("cuMemAlloc", 3020).function, Untyped(cuda.cuMemAlloc_v2));
  EXPECT_EQ(Ask("cuCtxSynchronize", 12090).function,
            Untyped(cuda.cuCtxSynchronize));
  EXPECT_EQ(Ask("cuMemcpyAsync", 12000).function, Untyped(cuda.cuMemcpyAsync));
  constexpr auto kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  EXPECT_EQ(Ask("cuMemcpyAsync", 12000, kPerThread).function,
            Untyped(cuda.cuMemcpyAsync_ptsz));
  EXPECT_EQ(Ask("cuMemcpyAsync", 4000, kPerThread).function,
            Untyped(cuda.cuMemcpyAsync));  // the variant came with 7000
  EXPECT_EQ(Ask("cuMemcpyHtoD", 13000, kPerThread).function,
            Untyped(cuda.cuMemcpyHtoD_v2_ptds));
  EXPECT_EQ(Ask("cuGetProcAddress", 11030).function,
            Untyped(cuda.cuGetProcAddress));
  EXPECT_EQ(Ask("cuGetProcAddress", 12000).function,
            Untyped(cuda.cuGetProcAddress_v2));
}

struct Row {
  const char* name;
  int since;
  Need need;
};
constexpr Row kRows[] = {
#define RESOLVER_ROW(symbol, name, since, need, args) \
  {#name, since, Need::need},
    FINESERVE_DRIVER_ENTRY_POINTS(RESOLVER_ROW)
#undef RESOLVER_ROW
};

CONFORMANCE_TEST(Resolver, EveryRequiredFunctionIsFoundByNameAndVersion) {
  for (const Row& row : kRows) {
    if (row.need != Need::kRequired || row.since > DriverVersion()) continue;
    const Answer answer = Ask(row.name, row.since);
    EXPECT_EQ(answer.result, CUDA_SUCCESS) << row.name;
    EXPECT_NE(answer.function, nullptr) << row.name;
  }
}

// Tests the rule of cudaTypedefs.h with pointers that the resolver returned: a
// version resolves to the same pointer until the next version of that name
// begins.
CONFORMANCE_TEST(Resolver, AnswerChangesExactlyWhereAVersionBegins) {
  int changes = 0;
  for (const Row& first : kRows) {
    for (const Row& next : kRows) {
      if (strcmp(first.name, next.name) != 0 || first.since >= next.since ||
          next.since > DriverVersion()) {
        continue;
      }
      EXPECT_NE(Ask(first.name, first.since).function,
                Ask(next.name, next.since).function)
          << next.name << " " << next.since;
      if (next.since == DriverVersion()) continue;
      EXPECT_EQ(Ask(next.name, next.since).function,
                Ask(next.name, next.since + 1).function)
          << next.name << " " << next.since;
      ++changes;
    }
  }
  EXPECT_GT(changes, 3);
}

CONFORMANCE_TEST(Resolver, UnknownExportTableIsRefused) {
  const void* table = nullptr;
  const CUuuid id = {};
  EXPECT_NE(Cuda().cuGetExportTable(&table, &id), CUDA_SUCCESS);
}

}  // namespace
}  // namespace fineserve::conformance

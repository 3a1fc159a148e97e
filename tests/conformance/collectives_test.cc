// Collectives between processes: results, operands, groups, transfers.

#include "tests/conformance/collectives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace fineserve::conformance {
namespace {

using Numbers = std::vector<double>;

// More elements than the emulated library moves in one step, and not a multiple
// of any step.
constexpr size_t kMany = 400'003;
constexpr size_t kFew = 37;

struct Type {
  ncclDataType_t id;
  const char* name;
  size_t bytes;
};
const Type kTypes[] = {
    {ncclInt8, "int8", 1},       {ncclUint8, "uint8", 1},
    {ncclInt32, "int32", 4},     {ncclUint32, "uint32", 4},
    {ncclInt64, "int64", 8},     {ncclUint64, "uint64", 8},
    {ncclFloat16, "float16", 2}, {ncclFloat32, "float32", 4},
    {ncclFloat64, "float64", 8}, {ncclBfloat16, "bfloat16", 2},
};

template <typename T>
void Put(char* to, double value) {
  const T number = static_cast<T>(value);
  memcpy(to, &number, sizeof(number));
}

template <typename T>
double Get(const char* from) {
  T number;
  memcpy(&number, from, sizeof(number));
  return static_cast<double>(number);
}

// Encodes `value` with `fraction` bits of fraction and `bias` for the exponent.
// It must be zero, or a normal number that the format holds exactly.
uint16_t HalfBits(double value, int fraction, int bias) {
  if (value == 0) return 0;
  int exponent = 0;
  const double part = std::frexp(std::fabs(value), &exponent);  // [0.5, 1)
  const auto bits = static_cast<unsigned>(std::ldexp(2 * part - 1, fraction));
  const unsigned sign = value < 0 ? 0x8000 : 0;
  const auto biased = static_cast<unsigned>(exponent - 1 + bias);
  return static_cast<uint16_t>(sign | biased << fraction | bits);
}

double HalfValue(uint16_t bits, int fraction, int bias) {
  const int exponent = (bits & 0x7fff) >> fraction;
  if (exponent == 0) return 0;
  const double part = 1 + std::ldexp(bits & ((1 << fraction) - 1), -fraction);
  const double size = std::ldexp(part, exponent - bias);
  return (bits & 0x8000) != 0 ? -size : size;
}

void PutAs(ncclDataType_t type, char* to, double value) {
  switch (type) {
    case ncclInt8:
      return Put<int8_t>(to, value);
    case ncclUint8:
      return Put<uint8_t>(to, value);
    case ncclInt32:
      return Put<int32_t>(to, value);
    case ncclUint32:
      return Put<uint32_t>(to, value);
    case ncclInt64:
      return Put<int64_t>(to, value);
    case ncclUint64:
      return Put<uint64_t>(to, value);
    case ncclFloat16:
      return Put<uint16_t>(to, HalfBits(value, 10, 15));
    case ncclBfloat16:
      return Put<uint16_t>(to, HalfBits(value, 7, 127));
    case ncclFloat32:
      return Put<float>(to, value);
    default:
      return Put<double>(to, value);
  }
}

double GetAs(ncclDataType_t type, const char* from) {
  switch (type) {
    case ncclInt8:
      return Get<int8_t>(from);
    case ncclUint8:
      return Get<uint8_t>(from);
    case ncclInt32:
      return Get<int32_t>(from);
    case ncclUint32:
      return Get<uint32_t>(from);
    case ncclInt64:
      return Get<int64_t>(from);
    case ncclUint64:
      return Get<uint64_t>(from);
    case ncclFloat16:
      return HalfValue(static_cast<uint16_t>(Get<uint16_t>(from)), 10, 15);
    case ncclBfloat16:
      return HalfValue(static_cast<uint16_t>(Get<uint16_t>(from)), 7, 127);
    case ncclFloat32:
      return Get<float>(from);
    default:
      return Get<double>(from);
  }
}

std::vector<char> Encode(const Type& type, const Numbers& numbers) {
  std::vector<char> bytes(numbers.size() * type.bytes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    PutAs(type.id, &bytes[i * type.bytes], numbers[i]);
  }
  return bytes;
}

Numbers Decode(const Type& type, const std::vector<char>& bytes) {
  Numbers numbers;
  for (size_t at = 0; at < bytes.size(); at += type.bytes) {
    numbers.push_back(GetAs(type.id, &bytes[at]));
  }
  return numbers;
}

// A rank's values are small, so that every type holds them, and nearly all of
// their sums and products over four ranks too (bfloat16 holds 256 = 8 bits).
double Sent(int rank, size_t i) {
  return 1 + static_cast<double>((i + 5 * static_cast<size_t>(rank)) % 3);
}

Numbers Operand(int rank, size_t count) {
  Numbers numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = Sent(rank, i);
  return numbers;
}

double Reduced(ncclRedOp_t op, int ranks, size_t i) {
  double value = Sent(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = Sent(rank, i);
    if (op == ncclSum || op == ncclAvg) value += next;
    if (op == ncclProd) value *= next;
    if (op == ncclMax) value = std::max(value, next);
    if (op == ncclMin) value = std::min(value, next);
  }
  return op == ncclAvg ? value / ranks : value;
}

// Returns `count` numbers of the plain computation, starting at index `first`.
Numbers ReducedFrom(ncclRedOp_t op, int ranks, size_t first, size_t count) {
  Numbers numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = Reduced(op, ranks, first + i);
  return numbers;
}

void ExpectSame(const Numbers& found, const Numbers& wanted,
                const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i], wanted[i]) << what << " at " << i;
  }
}

// Runs `body(rank, type, count)` for all types and sizes.
void ForAll(int ranks,
            const std::function<void(Rank&, const Type&, size_t)>& body) {
  RunRanks(ranks, [&](Rank& rank) {
    for (const Type& type : kTypes) {
      body(rank, type, kFew);
      if (type.bytes == 2 || type.id == ncclFloat32) body(rank, type, kMany);
    }
  });
}

// Defines a test of all types with two ranks, and one with four.
#define ALL_TYPES_TEST(suite, name)                                           \
  void suite##_##name##_Body(Rank& rank, const Type& type, size_t count);     \
  CONFORMANCE_TEST(suite, name##OfTwo) { ForAll(2, suite##_##name##_Body); }  \
  CONFORMANCE_TEST(suite, name##OfFour) { ForAll(4, suite##_##name##_Body); } \
  void suite##_##name##_Body(Rank& rank, const Type& type, size_t count)

#define EXPECT_NCCL(call) EXPECT_EQ(call, ncclSuccess) << #call

ALL_TYPES_TEST(Collectives, AllReduceGivesEveryRankTheReduction) {
  const char* const send =
      rank.Upload(Encode(type, Operand(rank.rank(), count)));
  char* const receive = rank.Allocate(count * type.bytes);
  for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin}) {
    EXPECT_NCCL(Nccl().ncclAllReduce(send, receive, count, type.id, op,
                                     rank.comm(), rank.stream()));
    ExpectSame(Decode(type, rank.Download(receive, count * type.bytes)),
               ReducedFrom(op, rank.ranks(), 0, count),
               std::string(type.name) + " op " + std::to_string(op));
  }
}

// With 2 ranks, halves of sums are exact. Integers are divided as in C++.
CONFORMANCE_TEST(Collectives, AverageDividesBytheNumberOfRanks) {
  RunRanks(2, [](Rank& rank) {
    for (const Type& type : kTypes) {
      const char* const send =
          rank.Upload(Encode(type, Operand(rank.rank(), kFew)));
      char* const receive = rank.Allocate(kFew * type.bytes);
      EXPECT_NCCL(Nccl().ncclAllReduce(send, receive, kFew, type.id, ncclAvg,
                                       rank.comm(), rank.stream()));
      Numbers wanted = ReducedFrom(ncclAvg, rank.ranks(), 0, kFew);
      const bool whole = type.id <= ncclUint64;
      for (double& value : wanted) value = whole ? std::floor(value) : value;
      ExpectSame(Decode(type, rank.Download(receive, kFew * type.bytes)),
                 wanted, type.name);
    }
  });
}

ALL_TYPES_TEST(Collectives, ReduceGivesTheRootTheReduction) {
  const int root = rank.ranks() - 1;
  const char* const send =
      rank.Upload(Encode(type, Operand(rank.rank(), count)));
  const bool is_root = rank.rank() == root;
  char* const receive = is_root ? rank.Allocate(count * type.bytes) : nullptr;
  EXPECT_NCCL(Nccl().ncclReduce(send, receive, count, type.id, ncclSum, root,
                                rank.comm(), rank.stream()));
  rank.Synchronize();
  if (!is_root) return;
  ExpectSame(Decode(type, rank.Download(receive, count * type.bytes)),
             ReducedFrom(ncclSum, rank.ranks(), 0, count), type.name);
}

ALL_TYPES_TEST(Collectives, ReduceScatterGivesEachRankItsPart) {
  const auto ranks = static_cast<size_t>(rank.ranks());
  const char* const send =
      rank.Upload(Encode(type, Operand(rank.rank(), ranks * count)));
  char* const receive = rank.Allocate(count * type.bytes);
  EXPECT_NCCL(Nccl().ncclReduceScatter(send, receive, count, type.id, ncclSum,
                                       rank.comm(), rank.stream()));
  const size_t first = static_cast<size_t>(rank.rank()) * count;
  ExpectSame(Decode(type, rank.Download(receive, count * type.bytes)),
             ReducedFrom(ncclSum, rank.ranks(), first, count), type.name);
}

ALL_TYPES_TEST(Collectives, AllGatherGivesEveryRankAllOperands) {
  const auto ranks = static_cast<size_t>(rank.ranks());
  const char* const send =
      rank.Upload(Encode(type, Operand(rank.rank(), count)));
  char* const receive = rank.Allocate(ranks * count * type.bytes);
  EXPECT_NCCL(Nccl().ncclAllGather(send, receive, count, type.id, rank.comm(),
                                   rank.stream()));
  Numbers wanted;
  for (int from = 0; from < rank.ranks(); ++from) {
    const Numbers its = Operand(from, count);
    wanted.insert(wanted.end(), its.begin(), its.end());
  }
  ExpectSame(Decode(type, rank.Download(receive, ranks * count * type.bytes)),
             wanted, type.name);
}

ALL_TYPES_TEST(Collectives, BroadcastGivesEveryRankTheRootsOperand) {
  const int root = 1;
  const std::vector<char> own = Encode(type, Operand(rank.rank(), count));
  char* const buffer = rank.Upload(own);
  char* const receive = rank.Allocate(own.size());
  const bool is_root = rank.rank() == root;
  EXPECT_NCCL(Nccl().ncclBroadcast(is_root ? buffer : nullptr, receive, count,
                                   type.id, root, rank.comm(), rank.stream()));
  const Numbers wanted = Operand(root, count);
  ExpectSame(Decode(type, rank.Download(receive, own.size())), wanted,
             type.name);
  EXPECT_NCCL(Nccl().ncclBcast(buffer, count, type.id, root, rank.comm(),
                               rank.stream()));
  ExpectSame(Decode(type, rank.Download(buffer, own.size())), wanted,
             type.name);
}

CONFORMANCE_TEST(Collectives, AlltoAllGatherAndScatterMoveParts) {
  RunRanks(4, [](Rank& rank) {
    const Type& type = kTypes[7];
    const size_t count = kMany / 4;
    const size_t bytes = 4 * count * type.bytes;
    const Numbers own = Operand(rank.rank(), 4 * count);
    const char* const send = rank.Upload(Encode(type, own));
    char* const receive = rank.Allocate(bytes);
    const auto part = [&](int of, int number) {
      const Numbers all = Operand(of, 4 * count);
      const auto begin = all.begin() + static_cast<long>(count) * number;
      return Numbers(begin, begin + static_cast<long>(count));
    };
    Numbers from_all;
    for (int from = 0; from < 4; ++from) {
      const Numbers its = part(from, rank.rank());
      from_all.insert(from_all.end(), its.begin(), its.end());
    }
    EXPECT_NCCL(Nccl().ncclAlltoAll(send, receive, count, type.id, rank.comm(),
                                    rank.stream()));
    ExpectSame(Decode(type, rank.Download(receive, bytes)), from_all, "all");

    EXPECT_NCCL(Nccl().ncclScatter(send, receive, count, type.id, 2,
                                   rank.comm(), rank.stream()));
    ExpectSame(Decode(type, rank.Download(receive, bytes / 4)),
               part(2, rank.rank()), "scatter");

    EXPECT_NCCL(Nccl().ncclGather(send, receive, count, type.id, 2, rank.comm(),
                                  rank.stream()));
    rank.Synchronize();
    if (rank.rank() != 2) return;
    Numbers gathered;
    for (int from = 0; from < 4; ++from) {
      const Numbers its = part(from, 0);
      gathered.insert(gathered.end(), its.begin(), its.end());
    }
    ExpectSame(Decode(type, rank.Download(receive, bytes)), gathered, "gather");
  });
}

CONFORMANCE_TEST(Collectives, OperandsMayLieInPlace) {
  RunRanks(4, [](Rank& rank) {
    const Type& type = kTypes[7];
    const auto own = static_cast<size_t>(rank.rank());
    const Numbers operand = Operand(rank.rank(), 4 * kMany);
    const std::vector<char> bytes = Encode(type, operand);
    const size_t part = kMany * type.bytes;

    char* const reduced = rank.Upload(bytes);
    EXPECT_NCCL(Nccl().ncclAllReduce(reduced, reduced, 4 * kMany, type.id,
                                     ncclSum, rank.comm(), rank.stream()));
    ExpectSame(Decode(type, rank.Download(reduced, bytes.size())),
               ReducedFrom(ncclSum, 4, 0, 4 * kMany), "AllReduce");

    char* const scattered = rank.Upload(bytes);
    EXPECT_NCCL(Nccl().ncclReduceScatter(scattered, scattered + own * part,
                                         kMany, type.id, ncclSum, rank.comm(),
                                         rank.stream()));
    ExpectSame(Decode(type, rank.Download(scattered + own * part, part)),
               ReducedFrom(ncclSum, 4, own * kMany, kMany), "ReduceScatter");

    char* const gathered = rank.Upload(bytes);
    EXPECT_NCCL(Nccl().ncclAllGather(gathered + own * part, gathered, kMany,
                                     type.id, rank.comm(), rank.stream()));
    const Numbers found = Decode(type, rank.Download(gathered, 4 * part));
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i], Sent(static_cast<int>(i / kMany), i)) << i;
    }
  });
}

CONFORMANCE_TEST(Collectives, AFactorMultipliesItsRanksOperand) {
  RunRanks(2, [](Rank& rank) {
    const Type& type = kTypes[7];
    const char* const send =
        rank.Upload(Encode(type, Operand(rank.rank(), kFew)));
    char* const receive = rank.Allocate(kFew * type.bytes);
    std::vector<char> factor = Encode(type, {rank.rank() + 2.0});
    ncclRedOp_t host, device;
    EXPECT_NCCL(Nccl().ncclRedOpCreatePreMulSum(
        &host, factor.data(), type.id, ncclScalarHostImmediate, rank.comm()));
    EXPECT_NCCL(Nccl().ncclRedOpCreatePreMulSum(
        &device, rank.Upload(factor), type.id, ncclScalarDevice, rank.comm()));
    factor.assign(factor.size(), 0);
    Numbers wanted(kFew);
    for (size_t i = 0; i < kFew; ++i)
      wanted[i] = 2 * Sent(0, i) + 3 * Sent(1, i);
    for (const ncclRedOp_t op : {host, device}) {
      EXPECT_NCCL(Nccl().ncclAllReduce(send, receive, kFew, type.id, op,
                                       rank.comm(), rank.stream()));
      ExpectSame(Decode(type, rank.Download(receive, kFew * type.bytes)),
                 wanted, "factor");
      EXPECT_NCCL(Nccl().ncclRedOpDestroy(op, rank.comm()));
      EXPECT_EQ(Nccl().ncclAllReduce(send, receive, kFew, type.id, op,
                                     rank.comm(), rank.stream()),
                ncclInvalidArgument);
    }
  });
}

ALL_TYPES_TEST(Transfers, ARingSendsAndReceivesAtOnce) {
  const int next = (rank.rank() + 1) % rank.ranks();
  const int last = (rank.rank() + rank.ranks() - 1) % rank.ranks();
  const char* const send =
      rank.Upload(Encode(type, Operand(rank.rank(), count)));
  char* const receive = rank.Allocate(count * type.bytes);
  EXPECT_NCCL(Nccl().ncclGroupStart());
  EXPECT_NCCL(
      Nccl().ncclSend(send, count, type.id, next, rank.comm(), rank.stream()));
  EXPECT_NCCL(Nccl().ncclRecv(receive, count, type.id, last, rank.comm(),
                              rank.stream()));
  EXPECT_NCCL(Nccl().ncclGroupEnd());
  ExpectSame(Decode(type, rank.Download(receive, count * type.bytes)),
             Operand(last, count), type.name);
}

CONFORMANCE_TEST(Transfers, BetweenTwoRanksTheyMatchInTheOrderOfTheCalls) {
  RunRanks(2, [](Rank& rank) {
    const Type& type = kTypes[2];
    const size_t bytes = kFew * type.bytes;
    char* const first = rank.Upload(Encode(type, Operand(5, kFew)));
    char* const second = rank.Upload(Encode(type, Operand(6, kFew)));
    char* const to[] = {rank.Allocate(bytes), rank.Allocate(bytes)};
    if (rank.rank() == 0) {
      for (const char* from : {first, second}) {
        EXPECT_NCCL(Nccl().ncclSend(from, kFew, type.id, 1, rank.comm(),
                                    rank.stream()));
      }
      return rank.Synchronize();
    }
    EXPECT_NCCL(Nccl().ncclGroupStart());
    for (char* at : to) {
      EXPECT_NCCL(
          Nccl().ncclRecv(at, kFew, type.id, 0, rank.comm(), rank.stream()));
    }
    EXPECT_NCCL(Nccl().ncclGroupEnd());
    ExpectSame(Decode(type, rank.Download(to[0], bytes)), Operand(5, kFew), "");
    ExpectSame(Decode(type, rank.Download(to[1], bytes)), Operand(6, kFew), "");
  });
}

CONFORMANCE_TEST(Groups, HoldCollectivesAndTransfersOfSeveralStreams) {
  RunRanks(2, [](Rank& rank) {
    const Type& type = kTypes[7];
    const size_t bytes = kFew * type.bytes;
    cudaStream_t other = nullptr;
    EXPECT_EQ(Runtime().cudaStreamCreate(&other), cudaSuccess);
    char* const send = rank.Upload(Encode(type, Operand(rank.rank(), kFew)));
    char* const to[] = {rank.Allocate(bytes), rank.Allocate(bytes),
                        rank.Allocate(bytes)};
    const int peer = 1 - rank.rank();
    EXPECT_NCCL(Nccl().ncclGroupStart());
    EXPECT_NCCL(
        Nccl().ncclRecv(to[2], kFew, type.id, peer, rank.comm(), other));
    EXPECT_NCCL(Nccl().ncclAllReduce(send, to[0], kFew, type.id, ncclSum,
                                     rank.comm(), rank.stream()));
    EXPECT_NCCL(Nccl().ncclGroupStart());  // an inner group launches nothing
    EXPECT_NCCL(Nccl().ncclSend(send, kFew, type.id, peer, rank.comm(), other));
    EXPECT_NCCL(Nccl().ncclGroupEnd());
    EXPECT_EQ(Runtime().cudaStreamQuery(other), cudaSuccess);
    EXPECT_NCCL(Nccl().ncclAllReduce(send, to[1], kFew, type.id, ncclMax,
                                     rank.comm(), other));
    EXPECT_NCCL(Nccl().ncclGroupEnd());
    EXPECT_EQ(Runtime().cudaStreamSynchronize(other), cudaSuccess);
    ExpectSame(Decode(type, rank.Download(to[0], bytes)),
               ReducedFrom(ncclSum, 2, 0, kFew), "sum");
    ExpectSame(Decode(type, rank.Download(to[1], bytes)),
               ReducedFrom(ncclMax, 2, 0, kFew), "max");
    ExpectSame(Decode(type, rank.Download(to[2], bytes)), Operand(peer, kFew),
               "transfer");
  });
}

CONFORMANCE_TEST(Communicators, OneThreadHoldsARankOnEachDevice) {
  setenv("EMUCUDA_DEVICES", "2", 1);
  ncclComm_t comms[2];
  EXPECT_NCCL(Nccl().ncclCommInitAll(comms, 2, nullptr));
  std::vector<char*> buffers;
  EXPECT_NCCL(Nccl().ncclGroupStart());
  for (int device = 0; device < 2; ++device) {
    EXPECT_EQ(Runtime().cudaSetDevice(device), cudaSuccess);
    const Rank memory(device, 2);
    buffers.push_back(memory.Upload(Encode(kTypes[7], Operand(device, kFew))));
    EXPECT_NCCL(Nccl().ncclAllReduce(buffers.back(), buffers.back(), kFew,
                                     ncclFloat32, ncclSum, comms[device],
                                     nullptr));
  }
  EXPECT_NCCL(Nccl().ncclGroupEnd());
  for (int device = 0; device < 2; ++device) {
    EXPECT_EQ(Runtime().cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(Runtime().cudaDeviceSynchronize(), cudaSuccess);
    ExpectSame(
        Decode(kTypes[7], Rank(device, 2).Download(buffers[device], kFew * 4)),
        ReducedFrom(ncclSum, 2, 0, kFew), "device");
    int found = -1;
    EXPECT_NCCL(Nccl().ncclCommUserRank(comms[device], &found));
    EXPECT_EQ(found, device);
    EXPECT_NCCL(Nccl().ncclCommCuDevice(comms[device], &found));
    EXPECT_EQ(found, device);
    EXPECT_NCCL(Nccl().ncclCommDestroy(comms[device]));
  }
}

CONFORMANCE_TEST(Communicators, ASplitOrdersItsRanksByKey) {
  RunRanks(4, [](Rank& rank) {
    const int color = rank.rank() == 3 ? kNoColor : rank.rank() % 2;
    ncclComm_t part = nullptr;
    EXPECT_NCCL(
        Nccl().ncclCommSplit(rank.comm(), color, -rank.rank(), &part, nullptr));
    if (color == kNoColor) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    int number = -1, ranks = -1;
    EXPECT_NCCL(Nccl().ncclCommUserRank(part, &number));
    EXPECT_NCCL(Nccl().ncclCommCount(part, &ranks));
    EXPECT_EQ(ranks, color == 0 ? 2 : 1);
    EXPECT_EQ(number, rank.rank() == 0 ? 1 : 0);  // ranks 2, 0; rank 1 alone
    char* const buffer =
        rank.Upload(Encode(kTypes[2], {static_cast<double>(rank.rank())}));
    EXPECT_NCCL(Nccl().ncclAllReduce(buffer, buffer, 1, ncclInt32, ncclSum,
                                     part, rank.stream()));
    EXPECT_EQ(Decode(kTypes[2], rank.Download(buffer, 4))[0],
              color == 0 ? 2 : 1);
    EXPECT_NCCL(Nccl().ncclCommFinalize(part));
    EXPECT_NCCL(Nccl().ncclCommDestroy(part));
  });
}

}  // namespace
}  // namespace fineserve::conformance

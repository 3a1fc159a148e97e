#include "daemon/pool/geometry/format.h"

#include <gtest/gtest.h>

#include <string>

namespace fineserve::slab {
namespace {

struct FormatCase {
  const char* name;
  KvShape shape;
  Format want;
};

class FormatTable : public testing::TestWithParam<FormatCase> {};

TEST_P(FormatTable, FollowsThePapersFormula) {
  const auto format = FormatOf(GetParam().shape);
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_EQ(format->planes, GetParam().want.planes);
  EXPECT_EQ(format->page_bytes, GetParam().want.page_bytes);
  EXPECT_EQ(format->block_tokens, GetParam().want.block_tokens);
}

// Models of the paper's Table 3; AWQ (W4A16) leaves KV at 16 bits. Layers, KV
// heads and head dim are from the models' public configurations.
constexpr KvShape Llama8B(uint32_t bits, uint64_t quant_bytes = 0) {
  return {32, 8, 128, bits, 1, quant_bytes, 16, Layout::kLayers};
}
constexpr KvShape Llama70B(uint32_t bits, uint32_t tp) {
  return {80, 8, 128, bits, tp, 0, 16, Layout::kLayers};
}
constexpr KvShape Qwen32B(uint32_t bits) {
  return {64, 8, 128, bits, 1, 0, 16, Layout::kLayers};
}

constexpr KvShape With(KvShape shape, Layout layout) {
  shape.layout = layout;
  return shape;
}

constexpr FormatCase kCases[] = {
    {"Llama31_8B_FP16", Llama8B(16), {32, 65536, 16}},
    {"Llama31_8B_FP8", Llama8B(8), {32, 32768, 16}},
    {"Llama31_8B_AWQ", Llama8B(16), {32, 65536, 16}},
    // Two fp32 parameters (scale of K, of V) per token and head.
    {"Llama3_8B_QoQ", Llama8B(4, 1024), {32, 17408, 16}},
    {"Llama31_70B_FP16", Llama70B(16, 1), {80, 65536, 16}},
    {"Llama31_70B_FP16_TP2", Llama70B(16, 2), {80, 32768, 16}},
    {"Llama31_70B_FP8_TP4", Llama70B(8, 4), {80, 8192, 16}},
    {"Llama31_70B_AWQ", Llama70B(16, 1), {80, 65536, 16}},
    {"Qwen3_32B_FP16", Qwen32B(16), {64, 65536, 16}},
    {"Qwen3_32B_FP8", Qwen32B(8), {64, 32768, 16}},
    {"Fp8PerTokenHead", Llama8B(8, 1024), {32, 33792, 16}},
    // One fp8 scale per 16 values.
    {"Nvfp4", Llama8B(4, 2048), {32, 18432, 16}},
    {"TensorParallelBeyondTheHeads", Llama70B(16, 16), {80, 8192, 16}},
    {"Packed", With(Llama8B(16), Layout::kPacked), {1, 2 << 20, 16}},
    {"PackedFp8", With(Llama8B(8), Layout::kPacked), {1, 1 << 20, 16}},
    {"PackedOdd", With(Llama8B(4, 1024), Layout::kPacked), {1, 557056, 16}},
    {"SplitKAndV", With(Llama8B(16), Layout::kSplit), {64, 32768, 16}},
    {"Split160", With(Llama70B(16, 2), Layout::kSplit), {160, 16384, 16}},
};

INSTANTIATE_TEST_SUITE_P(All, FormatTable, testing::ValuesIn(kCases),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

struct BadCase {
  const char* name;
  KvShape shape;
  const char* says;
};

class BadShapes : public testing::TestWithParam<BadCase> {};

TEST_P(BadShapes, AreRefusedNamingTheValue) {
  const auto format = FormatOf(GetParam().shape);
  ASSERT_FALSE(format.ok());
  EXPECT_NE(std::string(format.status().message()).find(GetParam().says),
            std::string::npos)
      << format.status();
}

constexpr BadCase kBad[] = {
    {"NoLayers", {0, 8, 128}, "layers is 0"},
    {"NoHeads", {32, 0, 128}, "KV heads is 0"},
    {"HugeHeadDim", {32, 8, 1 << 20}, "head dim is 1048576"},
    {"SixBits", {32, 8, 128, 6}, "6 bits"},
    {"HeadsByTp", {32, 8, 128, 16, 3}, "TP degree 3"},
    {"HalfAByteInAPlane",
     {1, 1, 1, 4, 1, 0, 1, Layout::kSplit},
     "not a whole number"},
};

INSTANTIATE_TEST_SUITE_P(All, BadShapes, testing::ValuesIn(kBad),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace fineserve::slab

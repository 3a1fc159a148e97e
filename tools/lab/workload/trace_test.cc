#include "tools/lab/workload/trace.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>
#include <string>

namespace fineserve::workload {
namespace {

constexpr char kTraceHeader[] =
    "timestamp_s,model,input_tokens,output_tokens\n";

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() : path_(testing::TempDir() + "trace_XXXXXX") {
    const int fd = mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    close(fd);
  }
  ~TraceTest() override { unlink(path_.c_str()); }

  const std::string& Zipped(const std::string& text) {
    const gzFile file = gzopen(path_.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path_;
  }

  std::string path_;
};

TEST_F(TraceTest, RowsAreReadAndModelsNumberedAsTheyAppear) {
  const auto trace = ReadTrace(Zipped(std::string(kTraceHeader) +
                                      "0.0,b,243,110\n0.5,a,1,2\n0.5,b,3,4\n"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->models, (std::vector<std::string>{"b", "a"}));
  ASSERT_EQ(trace->arrivals.size(), 3u);
  EXPECT_EQ(trace->arrivals[1].model, 1u);
  EXPECT_EQ(trace->arrivals[2].lengths.output, 4u);
  EXPECT_EQ(trace->seconds(), 0.5);
}

TEST_F(TraceTest, PlainTablesAreReadToo) {
  std::ofstream(path_) << kTraceHeader << "1.5,m,3,4\n";
  const auto trace = ReadTrace(path_);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->arrivals.size(), 1u);
}

TEST_F(TraceTest, NothingBecomesOneToken) {
  const auto trace = ReadTrace(Zipped(std::string(kTraceHeader) + "0,m,0,0\n"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->arrivals[0].lengths.input, 1u);
  EXPECT_EQ(trace->arrivals[0].lengths.output, 1u);
}

TEST_F(TraceTest, MistakeIsNamedWithItsRow) {
  EXPECT_EQ(ReadTrace("/nowhere.csv.gz").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadTrace(Zipped("a,b\n")).status().code(),
            absl::StatusCode::kDataLoss);
  const auto bad =
      ReadTrace(Zipped(std::string(kTraceHeader) + "0,m,1,1\n0.1,m,x,1\n"));
  EXPECT_NE(std::string(bad.status().message()).find(":3:"), std::string::npos)
      << bad.status();
  EXPECT_FALSE(
      ReadTrace(Zipped(std::string(kTraceHeader) + "2,m,1,1\n1,m,1,1\n")).ok())
      << "time goes back";
}

TEST_F(TraceTest, CutOffFileIsNoTrace) {
  std::string rows = kTraceHeader;
  for (int i = 0; i < 5000; ++i) {
    rows +=
        std::to_string(i) + ",m," + std::to_string(i * 7919 % 1009) + ",1\n";
  }
  Zipped(rows);
  std::string bytes;
  {
    std::ifstream in(path_, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::ofstream(path_, std::ios::binary | std::ios::trunc)
      << bytes.substr(0, bytes.size() / 2);
  EXPECT_EQ(ReadTrace(path_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(TraceTest, LengthsAreRead) {
  const auto lengths =
      ReadLengths(Zipped("input_tokens,output_tokens\n3742,284\n11,306\n"));
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  ASSERT_EQ(lengths->size(), 2u);
  EXPECT_EQ((*lengths)[0].input, 3742u);
  EXPECT_EQ((*lengths)[1].output, 306u);
}

}  // namespace
}  // namespace fineserve::workload

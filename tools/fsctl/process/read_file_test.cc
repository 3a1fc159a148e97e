#include "tools/fsctl/process/read_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>

#include "kernels/driver/descriptor.h"
#include "tests/process/temporary_folder.h"

namespace fineserve::fsctl {
namespace {

TEST(ReadFileTest, LastLineIsTheLastOneWithText) {
  const process::TemporaryFolder folder;
  const std::string path = folder.path() + "/log";
  const auto last = [&](const std::string& text, off_t begin = 0) {
    std::ofstream(path) << text;
    return LastLine(driver::Descriptor(open(path.c_str(), O_RDONLY)).get(),
                    begin);
  };
  EXPECT_EQ(last(""), "");
  EXPECT_EQ(last("one\ntwo\n"), "two");
  EXPECT_EQ(last("one\ntwo\n \n"), "two");
  EXPECT_EQ(last("one\n", 4), "") << "nothing since then";
  EXPECT_EQ(last(std::string(10'000, 'x') + "\nend"), "end");
  EXPECT_EQ(LastLine(-1), "") << "there is no file";
}

}  // namespace
}  // namespace fineserve::fsctl

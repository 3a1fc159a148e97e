#include "tools/fsctl/process/read_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>

#include "kernels/driver/descriptor.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::fsctl {
namespace {

// As with a file of a process that ends while it is read, the error comes after
// it has been opened.
TEST(ReadFileTest, FileWhoseReadFailsIsEmpty) {
  const process::TemporaryFolder folder;
  EXPECT_EQ(ReadFile(folder.path()), "");
  EXPECT_EQ(ReadFile(folder.path() + "/none"), "");
}

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

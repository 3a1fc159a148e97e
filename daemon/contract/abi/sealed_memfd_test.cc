#include "daemon/contract/abi/sealed_memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace fineserve::abi {
namespace {

constexpr size_t kBytes = 8192;

// Opens the memfd again, as a stranger of the same user could through /proc.
driver::Descriptor Reopen(const SealedMemfd& memfd) {
  const std::string path =
      "/proc/self/fd/" + std::to_string(memfd.descriptor());
  return driver::Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
}

void* MapWritable(int fd) {
  return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

TEST(SealedMemfdTest, SizeCannotChange) {
  const SealedMemfd memfd = SealedMemfd::Create("test", kBytes);
  ASSERT_TRUE(memfd.valid());
  EXPECT_EQ(memfd.bytes(), kBytes);
  EXPECT_NE(ftruncate(memfd.descriptor(), 0), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(ftruncate(memfd.descriptor(), 2 * kBytes), 0);
}

TEST(SealedMemfdTest, SealedAgainstWritersOnlyTheMakerWrites) {
  const SealedMemfd memfd = SealedMemfd::Create("test", kBytes);
  ASSERT_TRUE(memfd.SealAgainstWriters());
  const driver::Descriptor other = Reopen(memfd);
  EXPECT_EQ(MapWritable(other.get()), MAP_FAILED);
  static_cast<char*>(memfd.base())[5] = 'x';
  char read = 0;
  EXPECT_EQ(pread(other.get(), &read, 1, 5), 1);
  EXPECT_EQ(read, 'x');
}

TEST(SealedMemfdTest, SealedForGoodAnotherProcessStillMaps) {
  const SealedMemfd memfd = SealedMemfd::Create("test", kBytes);
  ASSERT_TRUE(memfd.SealForGood());
  EXPECT_FALSE(memfd.SealAgainstWriters());
  const driver::Descriptor other = Reopen(memfd);
  void* mapped = MapWritable(other.get());
  ASSERT_NE(mapped, MAP_FAILED);
  munmap(mapped, kBytes);
}

TEST(SealedMemfdTest, MovedFromOwnsNothing) {
  SealedMemfd from = SealedMemfd::Create("test", kBytes);
  void* const base = from.base();
  const SealedMemfd to = std::move(from);
  EXPECT_FALSE(from.valid());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(to.base(), base);
}

}  // namespace
}  // namespace fineserve::abi

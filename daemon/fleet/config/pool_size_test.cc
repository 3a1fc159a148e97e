#include "daemon/fleet/config/pool_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/contract/abi/byte_size.h"

namespace fineserve::config {
namespace {

using ::testing::HasSubstr;

using abi::kGiB;

TEST(PoolSizeTest, LastTextDecidesBetweenASizeAndAuto) {
  PoolSize size;
  ASSERT_TRUE(SetPoolSize("auto", &size).ok());
  EXPECT_TRUE(size.is_auto);
  ASSERT_TRUE(SetPoolSize("16GiB", &size).ok());
  EXPECT_FALSE(size.is_auto);
  EXPECT_EQ(size.bytes, 16 * kGiB);
  EXPECT_FALSE(SetPoolSize("automatic", &size).ok());
  EXPECT_EQ(size.bytes, 16 * kGiB) << "a mistake changes nothing";
}

struct Reserving {
  const char* text;  // null: none is given
  uint64_t bytes;    // of 90 GiB
};

TEST(ReserveTest, IsAThirdASizeOrAPercentageOfWhatIsFree) {
  for (const Reserving& r : {Reserving{nullptr, 30 * kGiB},
                             {"20GiB", 20 * kGiB},
                             {"100GiB", 100 * kGiB},
                             {"50%", 90 * kGiB / 100 * 50}}) {
    SCOPED_TRACE(r.text == nullptr ? "" : r.text);
    Reserve reserve;
    if (r.text != nullptr) {
      ASSERT_TRUE(SetReserve(r.text, &reserve).ok());
    }
    EXPECT_EQ(ReserveBytes(reserve, 90 * kGiB), r.bytes);
  }
}

TEST(ReserveTest, MistakesNameTheForm) {
  Reserve reserve;
  for (const char* text : {"0%", "100%", "-5%", "%", "5.5%"}) {
    EXPECT_THAT(std::string(SetReserve(text, &reserve).message()),
                HasSubstr("write 1% to 99%"))
        << text;
  }
  EXPECT_THAT(std::string(SetReserve("much", &reserve).message()),
              HasSubstr("like 20GiB or 40%"));
  EXPECT_FALSE(SetReserve("0GiB", &reserve).ok());
}

}  // namespace
}  // namespace fineserve::config

#include "daemon/proxy/relay/engine_pool.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace fineserve::proxy {
namespace {

class EnginePoolTest : public ::testing::Test {
 protected:
  // Keeps a connection and returns the engine's end of it.
  tcp::socket Keep() {
    tcp::socket kept(io_);
    kept.connect(engine_.local_endpoint());
    pool_.Keep("engine", std::move(kept), 0);
    return engine_.accept();
  }
  bool Take() { return pool_.Take("engine").has_value(); }

  asio::io_context io_;
  tcp::acceptor engine_{io_, {asio::ip::address_v4::loopback(), 0}};
  EnginePool pool_;
};

TEST_F(EnginePoolTest, QuietConnectionIsTakenOnce) {
  const tcp::socket end = Keep();
  EXPECT_TRUE(Take());
  EXPECT_FALSE(Take());
}

// The next client would get the unasked bytes as its answer.
TEST_F(EnginePoolTest, ConnectionWithUnaskedBytesIsClosed) {
  tcp::socket end = Keep();
  asio::write(end, asio::buffer("HTTP/1.1 200 OK", 15));
  EXPECT_FALSE(Take());
  char byte;
  error_code e;
  end.read_some(asio::buffer(&byte, 1), e);
  EXPECT_TRUE(e) << "its other end sees the close";
}

TEST_F(EnginePoolTest, ConnectionThatEndedIsPassedOver) {
  const tcp::socket quiet = Keep();
  Keep().close();
  EXPECT_TRUE(Take());
  EXPECT_FALSE(Take());
}

}  // namespace
}  // namespace fineserve::proxy

#include "daemon/proxy/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <string>

#include "kernels/driver/descriptor.h"

namespace fineserve::proxy {
namespace {

using boost::asio::ip::tcp;

constexpr char kHost[] = "127.0.0.1";

// The socket of a proxy that has ended, with a client that has connected since.
class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    socket_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    socklen_t bytes = sizeof(at);
    EXPECT_EQ(bind(socket_.get(), address, bytes), 0);
    EXPECT_EQ(listen(socket_.get(), 1), 0);
    EXPECT_EQ(getsockname(socket_.get(), address, &bytes), 0);
    port_ = ntohs(at.sin_port);
    client_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(client_.get(), address, bytes), 0);
  }

  // True if a proxy that listens on `port` finds the client, in a process that
  // systemd has handed the socket to.
  bool FindsClient(uint16_t port) {
    const pid_t child = fork();
    if (child == 0) {
      dup2(socket_.get(), 3);  // the first that systemd hands over
      setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
      setenv("LISTEN_FDS", "1", 1);
      setenv("LISTEN_FDNAMES", "clients", 1);
      boost::asio::io_context io;
      tcp::acceptor acceptor(io);
      if (!ListenAcrossRestarts(kHost, port, &acceptor).ok()) _exit(2);
      acceptor.non_blocking(true);
      boost::system::error_code e;
      acceptor.accept(e);
      _exit(e ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 2);
    return WEXITSTATUS(status) == 0;
  }

  driver::Descriptor socket_, client_;
  uint16_t port_ = 0;
};

TEST_F(ListenerTest, ClientThatConnectedInBetweenIsServed) {
  EXPECT_TRUE(FindsClient(port_));
}

TEST_F(ListenerTest, SocketOfAnotherAddressIsNotUsed) {
  EXPECT_FALSE(FindsClient(0));
}

}  // namespace
}  // namespace fineserve::proxy

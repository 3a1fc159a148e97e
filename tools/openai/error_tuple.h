#ifndef TOOLS_OPENAI_ERROR_TUPLE_H_
#define TOOLS_OPENAI_ERROR_TUPLE_H_

#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace fineserve::openai {

// Awaits an operation and returns its error as the first element of a tuple.
// Without this, an error is thrown.
inline constexpr auto kTuple =
    boost::asio::experimental::as_tuple(boost::asio::use_awaitable);

}  // namespace fineserve::openai

#endif  // TOOLS_OPENAI_ERROR_TUPLE_H_

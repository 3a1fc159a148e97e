#ifndef DAEMON_BACKING_MAILBOX_H_
#define DAEMON_BACKING_MAILBOX_H_

#include <atomic>
#include <deque>
#include <utility>

namespace fineserve::backing {

// A queue from several threads to one that takes everything, in order. No one
// ever waits: a lock would make its taker wait for a giver that lost its
// processor while it held it. Any thread may call Put; one at a time TakeAll.
template <typename T>
class Mailbox {
 public:
  Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox() { TakeAll(); }

  void Put(T item) {
    auto* letter = new Letter{std::move(item), nullptr};
    letter->before = last_.load(std::memory_order_relaxed);
    // Release: publishes the letter. Pairs with the acquire in TakeAll. Letters
    // are only ever taken all at once, so that no address can come back between
    // the load and the exchange and be taken for the same letter.
    while (!last_.compare_exchange_weak(letter->before, letter,
                                        std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
  }

  // Oldest first.
  std::deque<T> TakeAll() {
    std::deque<T> items;
    Letter* letter = last_.exchange(nullptr, std::memory_order_acquire);
    while (letter != nullptr) {
      items.push_front(std::move(letter->item));
      delete std::exchange(letter, letter->before);
    }
    return items;
  }

 private:
  struct Letter {
    T item;
    Letter* before;
  };

  std::atomic<Letter*> last_{nullptr};
};

}  // namespace fineserve::backing

#endif  // DAEMON_BACKING_MAILBOX_H_

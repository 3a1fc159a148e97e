#include "tools/lab/engines/tinyserve/model/answer.h"

namespace tinyserve {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 / φ, odd
constexpr Token kOneEndIn = 512;

// SplitMix64's finaliser: a bijection.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t Weight(size_t index) { return 2 * index + 1; }

// Inverse of an odd number modulo 2^64, by Newton's method: x itself is correct
// in three bits, and each round doubles the number of correct bits.
constexpr uint64_t Inverse(uint64_t x) {
  uint64_t y = x;
  for (int bits = 3; bits < 64; bits *= 2) y *= 2 - x * y;
  return y;
}
static_assert(Inverse(12345) * 12345 == 1);

// Cheap, because it is computed for every word of KV. Words are distinct for
// each index of a slot, and between states.
constexpr uint64_t PatternWord(State state, size_t index) {
  return state + kGolden * (index + 1);
}

// Σ Weight(i) × PatternWord(state, i) over i < count, in closed form.
constexpr uint64_t WeightedPattern(State state, uint64_t count) {
  return state * count * count +
         kGolden * (count * (count + 1) * (4 * count - 1) / 6);
}
static_assert(WeightedPattern(7, 2) ==
              PatternWord(7, 0) + 3 * PatternWord(7, 1));

}  // namespace

State FirstState(std::string_view model, int64_t seed) {
  uint64_t hash = Mix(static_cast<uint64_t>(seed) + kGolden);
  for (const char c : model) {
    hash = Mix(hash ^ static_cast<unsigned char>(c));
  }
  return hash;
}

State NextState(State state, Token token) {
  return Mix((state ^ token) + kGolden);
}

Token Choose(State read, bool may_end) {
  const uint64_t choice = Mix(read * kGolden);
  if (may_end && choice % kOneEndIn == 0) return kEndOfText;
  return 1 + static_cast<Token>((choice >> 16) % (kVocabulary - 1));
}

void FillSlot(const SlotShape& shape, State state, uint32_t plane,
              uint64_t* words) {
  const size_t first = plane * shape.plane_words;
  for (size_t i = 0; i < shape.plane_words; ++i) {
    words[i] = PatternWord(state, first + i);
  }
  if (plane + 1 < shape.planes) return;
  const size_t last = shape.planes * shape.plane_words - 1;
  const uint64_t sum = WeightedPattern(state, last);
  words[shape.plane_words - 1] = (state - sum) * Inverse(Weight(last));
}

State SlotDigest(const SlotShape& shape, uint32_t plane,
                 const uint64_t* words) {
  const size_t first = plane * shape.plane_words;
  State digest = 0;
  for (size_t i = 0; i < shape.plane_words; ++i) {
    digest += Weight(first + i) * words[i];
  }
  return digest;
}

std::vector<Token> ExpectedAnswer(std::string_view model,
                                  const std::vector<Token>& prompt,
                                  const Wanted& wanted) {
  State state = FirstState(model, wanted.seed);
  for (const Token token : prompt) state = NextState(state, token);
  std::vector<Token> answer;
  while (answer.size() < wanted.most_tokens) {
    const auto chosen = static_cast<uint32_t>(answer.size());
    answer.push_back(Choose(state, MayEnd(wanted, chosen)));
    if (answer.back() == kEndOfText) break;
    state = NextState(state, answer.back());
  }
  return answer;
}

}  // namespace tinyserve

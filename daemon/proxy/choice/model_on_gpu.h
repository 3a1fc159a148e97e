#ifndef DAEMON_PROXY_CHOICE_MODEL_ON_GPU_H_
#define DAEMON_PROXY_CHOICE_MODEL_ON_GPU_H_

namespace fineserve::proxy {

// One GPU's capability for a model, as the proxy sees the model's engines
// there.
class ModelOnGpu {
 public:
  // An engine of the model. `lets_in`: the plan, if there is one, lets it have
  // new requests. `target_rate`: requests/s.
  void Add(bool lets_in, bool serves, double target_rate);

  // True if it has an engine there at all.
  bool any() const { return any_; }
  // Sum over all its engines.
  double target_rate() const { return target_rate_; }
  // Candidate::trouble, the sum of those below. A GPU where the plan lets no
  // engine in comes after all others, then one whose engines do not answer.
  // Without a daemon the request is served unscheduled, or refused. `is_away`:
  // its memory would have to come back to the GPU first.
  int Trouble(bool has_daemon, bool is_away) const;
  static constexpr int kAway = 1, kNoDaemon = 2, kNoAnswer = 4, kNotLetIn = 8;
  static bool IsAway(int trouble) { return (trouble & kAway) != 0; }
  static bool Answers(int trouble) { return (trouble & kNoAnswer) == 0; }

 private:
  bool any_ = false, any_serves_ = false;
  bool lets_in_ = false, let_in_serves_ = false;
  double target_rate_ = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_CHOICE_MODEL_ON_GPU_H_

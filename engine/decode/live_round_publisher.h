#pragma once

#include "engine/sequence/decode_context.h"
#include "engine/sequence/round.h"

namespace draftscope {

/// Publishes the current round of the watched sequence while the gate stops the engine.
class LiveRoundPublisher final : public LevelObserver {
  public:
    explicit LiveRoundPublisher(DecodeContext& core);
    ~LiveRoundPublisher() override;
    LiveRoundPublisher(const LiveRoundPublisher&) = delete;
    LiveRoundPublisher& operator=(const LiveRoundPublisher&) = delete;

    /// Begins a step over `sequences`. The gate says which one is watched.
    void begin(std::span<const std::unique_ptr<Sequence>> sequences);
    bool shows(const Sequence& sequence) const { return sequence_ == &sequence; }
    /// `tree` must stay valid until the step ends.
    void set_tree(const DraftTree& tree) { shown_ = &tree; }
    /// From this call on the target's choices are shown. `rounds` must stay valid until the step ends.
    void set_accepted(std::span<const Round> rounds);
    void end() { sequence_ = nullptr; }

    bool observing() const override { return core_.gate.paused(); }
    void level_done(int sequence, int level, FunctionRef<DraftTree()> partial) override;

  private:
    void show(const HoldPoint& point);

    DecodeContext& core_;
    const Sequence* sequence_ = nullptr;  ///< set while a step runs
    const Round* accepted_ = nullptr;     ///< the round of the watched sequence, once accepted
    std::uint64_t start_ticks_ = 0;       ///< start of the step
    DraftTree tree_;                      ///< copy of the partially drafted tree that was published last
    const DraftTree* shown_ = &tree_;
};

}  // namespace draftscope

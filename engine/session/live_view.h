#pragma once

#include "engine/session/round.h"
#include "engine/session/session_core.h"

namespace draftscope {

/// Shows the round in flight of one sequence of a step, the watched one, while the gate holds the engine.
class LiveView final : public LevelWatcher {
  public:
    explicit LiveView(SessionCore& core);
    ~LiveView() override;
    LiveView(const LiveView&) = delete;
    LiveView& operator=(const LiveView&) = delete;

    /// A step over `sequences` begins; the gate says which of them is watched.
    void begin(std::span<const std::unique_ptr<Sequence>> sequences);
    bool shows(const Sequence& sequence) const { return watched_ == &sequence; }
    /// `tree` stays where it is until the step ends.
    void set_tree(const DraftTree& tree) { shown_ = &tree; }
    /// The step's rounds are accepted: from here on the target's choices are shown too. They stay where they
    /// are until the step ends.
    void set_accepted(std::span<const Round> rounds);
    void end() { watched_ = nullptr; }

    bool watching() const override { return core_.gate.paused(); }
    void level_done(int sequence, int level, FunctionRef<DraftTree()> partial) override;

  private:
    void show(const HoldPoint& point);
    /// The nodes as they are known now: as drafted, then with the target's view.
    void fill_nodes(RoundRecord& partial) const;

    SessionCore& core_;
    const Sequence* watched_ = nullptr;  ///< while a step runs
    const Round* accepted_ = nullptr;    ///< the watched one's, once accepted
    std::uint64_t start_ticks_ = 0;      ///< of the step
    DraftTree tree_;                     ///< while it grows, as far as it was shown
    const DraftTree* shown_ = &tree_;
};

}  // namespace draftscope

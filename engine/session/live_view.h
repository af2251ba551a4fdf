#pragma once

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
    void end() { watched_ = nullptr; }

    bool watching() const override { return core_.gate.paused(); }
    void level_done(int sequence, int level, FunctionRef<DraftTree()> partial) override;

  private:
    void show(Phase phase, int level);

    SessionCore& core_;
    const Sequence* watched_ = nullptr;  ///< while a step runs
    DraftTree tree_;                     ///< while it grows, as far as it was shown
    const DraftTree* shown_ = &tree_;
};

}  // namespace draftscope

#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/units.h"
#include "profiler/phase.h"

namespace draftscope {

/// Which phase the nodes of CUDA graphs belong to: noted when a node is captured, copied when instantiation
/// clones it, looked up by the executable node that a kernel record names. Ids come back into use while
/// records of their former owner are still on the way, so each id keeps a history and is forgotten late.
/// Not thread-safe.
class GpuPhaseMap {
  public:
    void created(std::uint64_t node, Phase phase, TimeNs now);
    /// An original that is not known (captured before the session) gives a node of no phase.
    void cloned(std::uint64_t node, std::uint64_t original, TimeNs now);
    void destroyed(std::uint64_t node, TimeNs now);
    /// The phase that the node had when it was launched; absent when it was never seen.
    std::optional<Phase> phase_of(std::uint64_t node, TimeNs launched) const;
    /// The phase of all nodes of an executable graph, when it is one; none when they differ.
    std::optional<Phase> phase_of_graph(std::uint32_t exec, TimeNs launched) const;
    /// Forgets nodes destroyed before that time.
    void forget_before(TimeNs time);

    std::size_t size() const { return nodes_.size(); }
    /// Clones whose original was captured before the session.
    std::uint64_t late_clones() const { return late_clones_; }

  private:
    struct Owner {
        Phase phase = Phase::none;
        TimeNs since = 0;
        TimeNs until = 0;  ///< 0 = alive
    };
    void own(std::uint64_t node, Phase phase, TimeNs now);
    const Owner* owner(std::uint64_t node, TimeNs time) const;

    std::unordered_map<std::uint64_t, std::vector<Owner>> nodes_;
    std::unordered_map<std::uint32_t, std::unordered_set<std::uint64_t>> graphs_;
    std::vector<std::uint64_t> destroyed_;
    std::uint64_t late_clones_ = 0;
};

}  // namespace draftscope

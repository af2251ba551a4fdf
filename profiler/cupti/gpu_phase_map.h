#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/phase.h"
#include "base/units.h"

namespace draftscope {

/// Maps the nodes of CUDA graphs to phases. A node's phase is stored at capture, copied when instantiation
/// clones the node, and looked up by the executable node of a kernel record. Ids are reused while records of
/// the previous node are still pending, so each id keeps a history. Not thread-safe.
class GpuPhaseMap {
  public:
    void created(std::uint64_t node, Phase phase, TimeNs now);
    /// If the original is unknown (captured before the session), the node has no phase.
    void cloned(std::uint64_t node, std::uint64_t original, TimeNs now);
    void destroyed(std::uint64_t node, TimeNs now);
    /// Returns the phase of the node at launch time; absent if the node is unknown.
    std::optional<Phase> find_phase(std::uint64_t node, TimeNs launched) const;
    /// Returns the common phase of all nodes of an executable graph; none if they differ.
    std::optional<Phase> find_graph_phase(std::uint32_t exec, TimeNs launched) const;
    /// Removes nodes destroyed before `time`.
    void forget_before(TimeNs time);

    std::size_t size() const { return nodes_.size(); }

  private:
    struct Owner {
        Phase phase = Phase::none;
        TimeNs since = 0;
        TimeNs until = 0;  ///< 0 = alive
    };
    const Owner* owner(std::uint64_t node, TimeNs time) const;

    std::unordered_map<std::uint64_t, std::vector<Owner>> nodes_;
    std::unordered_map<std::uint32_t, std::unordered_set<std::uint64_t>> graphs_;
    std::vector<std::uint64_t> destroyed_;
};

}  // namespace draftscope

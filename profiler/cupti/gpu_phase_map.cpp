#include "profiler/cupti/gpu_phase_map.h"

#include <algorithm>

namespace draftscope {

namespace {

// CUPTI stores the executable graph's id above the node number.
std::uint32_t graph_id(std::uint64_t node) {
    return static_cast<std::uint32_t>(node >> 32);
}

}  // namespace

void GpuPhaseMap::created(std::uint64_t node, Phase phase, TimeNs now) {
    std::vector<Owner>& owners = nodes_[node];
    if (!owners.empty() && owners.back().until == 0) {
        owners.back().until = now;
        destroyed_.push_back(node);
    }
    owners.push_back({phase, now, 0});
    graphs_[graph_id(node)].insert(node);
}

const GpuPhaseMap::Owner* GpuPhaseMap::owner(std::uint64_t node, TimeNs time) const {
    const auto found = nodes_.find(node);
    if (found == nodes_.end()) return nullptr;
    const std::vector<Owner>& owners = found->second;
    for (auto at = owners.rbegin(); at != owners.rend(); ++at)
        if (at->since <= time) return &*at;
    return nullptr;
}

void GpuPhaseMap::cloned(std::uint64_t node, std::uint64_t original, TimeNs now) {
    const Owner* from = owner(original, now);
    created(node, from != nullptr ? from->phase : Phase::none, now);
}

void GpuPhaseMap::destroyed(std::uint64_t node, TimeNs now) {
    const auto found = nodes_.find(node);
    if (found == nodes_.end() || found->second.back().until != 0) return;
    found->second.back().until = now;
    destroyed_.push_back(node);
}

std::optional<Phase> GpuPhaseMap::find_phase(std::uint64_t node, TimeNs launched) const {
    const Owner* found = owner(node, launched);
    return found != nullptr ? std::optional(found->phase) : std::nullopt;
}

std::optional<Phase> GpuPhaseMap::find_graph_phase(std::uint32_t exec, TimeNs launched) const {
    const auto nodes = graphs_.find(exec);
    if (nodes == graphs_.end()) return std::nullopt;
    std::optional<Phase> common;
    for (const std::uint64_t node : nodes->second) {
        const Owner* found = owner(node, launched);
        if (found == nullptr || found->phase == Phase::none) continue;
        if (common && *common != found->phase) return Phase::none;
        common = found->phase;
    }
    return common;
}

void GpuPhaseMap::forget_before(TimeNs time) {
    const auto forget = [&](std::uint64_t node) {
        const auto found = nodes_.find(node);
        if (found == nodes_.end()) return true;
        std::vector<Owner>& owners = found->second;
        std::erase_if(owners, [&](const Owner& owner) { return owner.until != 0 && owner.until < time; });
        const bool waits =
            std::any_of(owners.begin(), owners.end(), [](const Owner& owner) { return owner.until != 0; });
        if (!owners.empty()) return !waits;
        nodes_.erase(found);
        const auto graph = graphs_.find(graph_id(node));
        graph->second.erase(node);
        if (graph->second.empty()) graphs_.erase(graph);
        return true;
    };
    std::erase_if(destroyed_, forget);
}

}  // namespace draftscope

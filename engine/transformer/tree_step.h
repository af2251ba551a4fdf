#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numel.h"
#include "base/units.h"
#include "kernels/device_array.h"

namespace draftscope {

/// What is known of a tree before it is grown on a device, and what its rows will be asked.
struct TreePlan {
    int nodes = 1;                 ///< root included
    int levels = 0;                ///< below the root
    std::vector<double> uniforms;  ///< of the choice after a node, by its depth; empty = the best token
    /// Tokens whose probability after a node is wanted, by its depth; null = not there. May be empty.
    std::vector<const std::vector<TokenId>*> sets;
    /// Of drawn drafts, whose growth says what they were drawn from (TreeStep::use_drafts): most children of
    /// a node, and the uniforms of their acceptance, [levels + 1, most_drafts] by the node's depth. 0 = not
    /// drawn.
    int most_drafts = 0;
    std::vector<double> draft_uniforms = {};
    /// In place of them: whoever grows the trees says the sets (TreeStep::use_sets). Of all plans or none.
    bool sets_come = false;
};

/// What drawn drafts were drawn from, on a device: q of row r lies from probs + r * stride on, `support`
/// values, each of the token that `ids` says (null: of its own number).
struct DrawnFrom {
    float* probs = nullptr;  ///< [rows, stride], the acceptance's to change
    float* room = nullptr;   ///< for as many values
    std::int64_t stride = 0;
    int support = 0;
    const TokenId* ids = nullptr;
    // Of rows with columns of their own, `stride` ids each: how many; null = all have these.
    const std::int32_t* sizes = nullptr;
};

/// Trees of a step as rows on a device, which grows them, runs them through the target and accepts a path of
/// each before the host sees any of it. The caller holds Device::busy() around what asks for ops.
class TreeStep {
  public:
    struct Tree {
        int first_row = 0, nodes = 0, levels = 0;
    };

    /// Makes room and brings over what the plans say; false when memory is out.
    bool place(kernels::Device& device, std::span<const TreePlan> plans);
    int rows() const { return rows_; }
    std::span<const Tree> trees() const { return trees_; }
    const kernels::TreeRows& there() const { return there_; }
    const TokenId* set_ids() const { return sets_come_ ? come_ids_ : set_ids_.as<TokenId>(); }
    bool sets_come() const { return sets_come_; }
    /// Before aim(), where the sets come: of tree i at depth t the tokens at ids + first[i * width + t], as
    /// many as sizes[i * width + t] says there; `width` is that of there().
    void use_sets(const TokenId* ids, std::span<const std::int32_t> first, const std::int32_t* sizes);
    bool drawn() const { return drawn_; }
    /// Before the acceptance, where drafts are drawn: TreeRows::sampled_rows of nodes with children are rows
    /// of it.
    void use_drafts(const DrawnFrom& from) { drawn_from_ = from; }
    bool drafts_drawn() const { return most_drafts_ > 0; }
    bool has_sets() const { return has_sets_; }
    /// Where tree `index` goes: the part of `op` that is not of the pool.
    void aim(kernels::RerankOp& op, int index) const;
    /// Follows the choices of all rows, of row r at choices[r * stride].
    void ask_acceptance(const std::int32_t* choices, std::int64_t stride);
    /// Typical acceptance of all trees: `op` is what they have in common, its arrays of all rows.
    void ask_typical(kernels::AcceptTypicalOp op);
    /// Lists the drafts of all rows: `op` gets what they are, and what they were drawn from. Node i of it is
    /// row i.
    void ask_drafts(kernels::RejectionSampleOp& op);
    /// Follows the drafts that were kept, of row r accepted[r].
    void ask_kept(const std::int32_t* accepted);
    /// Of a path that was accepted there, or that the host says.
    const std::int32_t* path_there(int index) const;
    const std::int32_t* path_count_there(int index) const;
    void set_path(int index, std::span<const int> path);
    /// Asks for the trees and paths; they are here after Device::finish().
    void ask_download();

    // After the wait, of tree `index`: [nodes].
    std::span<const std::int32_t> tokens(int index) const { return part(index, 0); }
    std::span<const std::int32_t> parents(int index) const { return part(index, 1); }  ///< rows of the step
    std::vector<float> logprobs(int index) const;
    std::vector<int> path(int index) const;

  private:
    std::span<const std::int32_t> part(int index, int array) const {
        const Tree& tree = trees_[index];
        const auto from = numel(array, rows_) + tree.first_row;
        return std::span(here_).subspan(from, tree.nodes);
    }
    bool place_sets(std::span<const TreePlan> plans);
    bool place_uniforms(std::span<const TreePlan> plans);
    bool place_drafts(std::span<const TreePlan> plans);
    std::size_t paths_at() const { return 3 * static_cast<std::size_t>(rows_); }
    std::size_t path_cells() const { return static_cast<std::size_t>(there_.width) + 1; }

    kernels::Device* device_ = nullptr;
    int rows_ = 0;
    bool drawn_ = false, has_sets_ = false, sets_come_ = false;
    int most_drafts_ = 0;
    DrawnFrom drawn_from_;
    kernels::DeviceArray<std::int32_t> drawn_rows_, drafts_, children_;
    kernels::DeviceArray<double> draft_uniforms_by_depth_, draft_uniforms_;
    kernels::DeviceArray<kernels::RejectionNode> draft_nodes_;
    const TokenId* come_ids_ = nullptr;
    const std::int32_t* come_sizes_ = nullptr;
    std::vector<Tree> trees_;
    kernels::TreeRows there_;
    /// Of all rows tokens, parents, log-probabilities; then of all trees the path and its length: what comes
    /// back.
    kernels::DeviceArray<std::int32_t> block_;
    kernels::DeviceArray<std::int32_t> positions_, tail_sizes_, tails_, row_sets_, sets_by_depth_, set_ids_;
    kernels::DeviceArray<double> uniforms_, uniforms_by_depth_;
    std::vector<TokenId> ids_;             ///< of the sets, one behind the other; as uploaded
    std::vector<std::int32_t> set_table_;  ///< [trees, width] first, then sizes
    std::vector<std::int32_t> here_;       ///< the block, as downloaded
};

}  // namespace draftscope

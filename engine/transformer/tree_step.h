#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/numel.h"
#include "base/result.h"
#include "base/units.h"
#include "engine/tree/draft_tree.h"
#include "kernels/device_array.h"

namespace draftscope {

/// The size of a tree before it grows on a device, and the inputs of its rows by depth.
struct TreePlan {
    int nodes = 1;   ///< including the root
    int levels = 0;  ///< below the root
    std::vector<double> uniforms =
        {};  ///< [levels + 1] for the choice after a node, by its depth; empty = greedy
    /// Token sets whose probability after a node of the path is requested, by its depth; null = none. May be
    /// empty. See TreeStep::place_sets().
    std::vector<const std::span<const TokenId>*> sets = {};
    int max_path = 0;  ///< upper bound of the accepted path's nodes, including the root; 0 = levels + 1
    /// Maximum children of a node for sampled drafts and rejection sampling; 0 = not used. The uniforms of
    /// their acceptance are [levels + 1, max_drafts], by the node's depth. See TreeStep::use_drafts().
    int max_drafts = 0;
    std::vector<double> draft_uniforms = {};
    /// The sets are computed on the device and set by TreeStep::use_sets(). Equal in all plans of a step.
    bool sets_come = false;

    /// Starts a plan of this size in the same memory.
    void reset(int nodes_in, int levels_in) {
        nodes = nodes_in;
        levels = levels_in;
        uniforms.clear();
        sets.clear();
        draft_uniforms.clear();
        max_drafts = max_path = 0;
        sets_come = false;
    }
};

/// Distributions of sampled drafts, in device memory. Row r has `support` probabilities from probs + r *
/// stride on. Value i is the probability of token ids[i], or of token i if `ids` is null.
struct DrawnFrom {
    float* probs = nullptr;  ///< [rows, stride], modified by the acceptance
    float* room = nullptr;   ///< scratch, as many values
    std::int64_t stride = 0;
    int support = 0;
    const TokenId* ids = nullptr;
    // [rows] number of values of each row, if `ids` is [rows, stride]; null = all rows share `ids`.
    const std::int32_t* sizes = nullptr;
};

/// The trees of a step as rows in device memory. The device grows them, runs them through the target and
/// accepts a path of each before the host reads them. The caller holds Backend::submit_mutex() while it
/// enqueues ops.
class TreeStep {
  public:
    struct Tree {
        int first_row = 0, nodes = 0, levels = 0;
        int max_path = 0;  ///< of the accepted path
    };

    /// Reserves memory for the trees and uploads the inputs of `plans` except their sets. Returns false if
    /// out of memory.
    bool place(kernels::Backend& backend, std::span<const TreePlan> plans);
    /// Uploads the sets of `plans`, which may depend on the trees. Returns false if out of memory.
    bool place_sets(std::span<const TreePlan> plans);
    int rows() const { return rows_; }
    std::span<const Tree> trees() const { return trees_; }
    const kernels::TreeRows& rows_on_device() const { return rows_on_device_; }
    bool sets_come() const { return sets_come_; }
    /// Sets the token sets if the device computes them. Tree trees[i] has at depth t the sizes[i * width + t]
    /// tokens at ids + first[i * width + t]; `width` is that of rows_on_device(). `ids` and `sizes` are in
    /// device memory.
    void use_sets(const TokenId* ids, std::span<const std::int32_t> first, const std::int32_t* sizes,
                  std::span<const int> trees);
    /// Returns whether the target's choices are sampled.
    bool samples_choices() const { return drawn_; }
    /// Sets the distributions of sampled drafts; call it before the acceptance. TreeRows::sampled_rows of
    /// nodes with children are indices of its rows.
    void use_drafts(const DrawnFrom& from) { drawn_from_ = from; }
    bool has_sets() const { return has_sets_; }
    /// Sets the fields of `op` that depend on the step's rows, for tree `index`.
    void aim(kernels::RerankOp& op, int index) const;
    /// Sets the fields of `op` that depend on the step's rows and sets, for the path of tree `index`. Returns
    /// false if the tree has no sets.
    bool aim(kernels::SetProbabilityOp& op, int index) const;
    /// Uploads a tree from host memory instead of growing it, with the nodes and levels of its plan.
    /// `position` is that of the root. `sampled_rows` are as in TreeRows; empty = its drafts are certain.
    void upload_tree(int index, const DraftTree& tree, int position,
                     std::span<const std::int32_t> sampled_rows = {});
    /// Sets certain drafts, for rejection sampling of a step without grown trees; replaces use_drafts().
    /// Returns false if out of memory.
    bool use_certain_drafts();
    /// Enqueues exact-match acceptance of all trees. The choice of row r is choices[r * stride]; null accepts
    /// the first children.
    void accept_by_choices(const std::int32_t* choices, std::int64_t stride);
    /// Enqueues typical acceptance of all trees. The ops have the fields common to them, with arrays of all
    /// rows.
    void accept_typical(const kernels::EntropyOp& entropy, kernels::AcceptTypicalOp op);
    /// Enqueues acceptance by rejection sampling. Sets the drafts and distributions of `op`, whose node i is
    /// row i. See Backend::sample_and_follow().
    void accept_by_rejection(kernels::RejectionSampleOp op, int max_nodes);
    /// Device addresses of a tree's path [width] and of its length [1], which the acceptance writes.
    const std::int32_t* device_path(int index) const;
    const std::int32_t* device_path_count(int index) const;
    /// Adds a download to enqueue_download(), so that a device does not wait for it earlier.
    void add_download(void* to, const void* from, std::size_t bytes) { added_.push_back({to, from, bytes}); }
    /// Enqueues the download of the trees and paths, and the added ones. They are valid after
    /// Backend::synchronize().
    void enqueue_download();

    // After Backend::synchronize():
    /// Reads tree `index` without its missing nodes and finishes it. Invalid parents are an error.
    Status read_tree(int index, DraftTree& out) const;
    std::span<const int> path(int index) const;  ///< valid until the next download

  private:
    std::int32_t* path_of(int index) const;
    std::span<const std::int32_t> part(int index, int array) const {
        const Tree& tree = trees_[index];
        const auto from = numel(array, rows_) + tree.first_row;
        return std::span(here_).subspan(from, tree.nodes);
    }
    bool place_uniforms(std::span<const TreePlan> plans);
    bool place_drafts(std::span<const TreePlan> plans);
    std::size_t paths_at() const { return 3 * static_cast<std::size_t>(rows_); }
    std::size_t path_cells() const { return static_cast<std::size_t>(rows_on_device_.width) + 1; }

    struct Download {
        void* to;
        const void* from;
        std::size_t bytes;
    };
    std::vector<Download> added_;
    kernels::Backend* backend_ = nullptr;
    int rows_ = 0;
    bool drawn_ = false, has_sets_ = false, sets_come_ = false;
    int max_drafts_ = 0;
    DrawnFrom drawn_from_;
    kernels::DeviceArray<std::int32_t> drawn_rows_, drafts_, children_;
    kernels::DeviceArray<float> certain_;  ///< [2, rows] probabilities and scratch of certain drafts
    kernels::DeviceArray<double> draft_uniforms_by_depth_, draft_uniforms_;
    kernels::DeviceArray<kernels::RejectionNode> draft_nodes_;
    const TokenId* come_ids_ = nullptr;
    const std::int32_t* come_sizes_ = nullptr;
    std::vector<Tree> trees_;
    kernels::TreeRows rows_on_device_;
    /// The values that are downloaded: tokens, parents and log-probabilities of all rows, then each tree's
    /// path and its length.
    kernels::DeviceArray<std::int32_t> block_;
    kernels::DeviceArray<std::int32_t> positions_, tail_sizes_, tails_, sets_by_depth_, set_ids_;
    std::vector<int> set_index_;  ///< [trees] row of its sets in the table; -1 = none
    // Ops of the acceptance, reused:
    std::vector<kernels::FollowArgmaxOp> follow_choices_;
    std::vector<kernels::ListChildrenOp> lists_;
    std::vector<kernels::FollowAcceptedOp> follow_accepted_;
    std::vector<kernels::AcceptTypicalOp> typical_;
    kernels::DeviceArray<double> uniforms_, uniforms_by_depth_;
    std::vector<TokenId> ids_, next_ids_;  ///< uploaded tokens of the sets, one after another
    std::vector<std::pair<const std::span<const TokenId>*, std::int32_t>> seen_sets_;
    std::vector<std::int32_t> set_table_;      ///< [2, trees, width] first indices, then sizes
    std::vector<double> uniform_table_;        ///< [trees, width]
    std::vector<double> draft_uniform_table_;  ///< [trees, width, max_drafts]
    std::vector<std::int32_t> here_;           ///< downloaded copy of block_
    /// Rows of upload_tree(), reused.
    struct UploadedRows {
        std::vector<std::int32_t> parents, positions, counts, slots, rows;
        std::vector<double> uniforms;
        std::vector<int> path;
        void reserve(int rows, int width);
        void clear();
    };
    UploadedRows uploaded_;
};

}  // namespace draftscope

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/round/arena.h"
#include "engine/round/plan.h"
#include "engine/tree/draft_tree.h"
#include "kernels/device_array.h"

namespace draftscope {

/// Probabilities that drafts were sampled from, in the backend's memory. Row r has `support` of them from
/// probs
/// + r * stride on. Value i is the probability of token ids[i], or of token i if `ids` is null.
struct DraftProbs {
    float* probs = nullptr;    ///< [rows, stride], modified by the acceptance; null = all drafts are certain
    float* scratch = nullptr;  ///< as many values
    std::int64_t stride = 0;
    int support = 0;
    const TokenId* ids = nullptr;
    /// [rows] number of values of each row, if `ids` is [rows, stride]; null = all rows share `ids`.
    const std::int32_t* sizes = nullptr;
};

/// Token sets by tree and depth, in the backend's memory. Set (t, depth) of tree t has the sizes[at] tokens
/// from ids + first[at] on, where `at` is table_row[t] * width + depth and `width` is the plan's.
struct TokenSets {
    const TokenId* ids = nullptr;
    const std::int32_t* first = nullptr;
    const std::int32_t* sizes = nullptr;
    std::span<const int> table_row = {};  ///< [trees]; -1 = the tree has none
    bool has(int tree_index) const { return !table_row.empty() && table_row[tree_index] >= 0; }
};

/// Where the trees of a step lie in the backend's memory. A tree's nodes are adjacent rows of all arrays.
class RoundLayout {
  public:
    struct Tree {
        int first_row = 0, nodes = 0;
    };

    /// Allocates the arrays for a plan, which outlives the layout, and uploads its random numbers. Returns
    /// false if out of memory.
    bool lay_out(kernels::Backend& backend, RoundMemory& memory, const RoundPlan& plan);
    const RoundPlan& plan() const { return *plan_; }
    std::span<const Tree> trees() const { return trees_; }
    int rows() const { return rows_; }
    const kernels::TreeRows& arrays() const { return arrays_; }
    /// Number of values that array() and the paths take together.
    std::size_t block_size() const { return path_at(plan_->count()); }
    /// Tokens, parents and log-probabilities of the rows, then each tree's path and its length.
    std::int32_t* block() const { return arrays_.tokens; }
    std::size_t array_at(int array) const { return numel(array, planned_rows_); }
    std::size_t path_at(int tree_index) const { return array_at(3) + numel(tree_index, plan_->width + 1); }
    /// A tree's accepted path [width] and its length [1], written by the acceptance.
    std::int32_t* path(int tree_index) const { return block() + path_at(tree_index); }
    std::int32_t* path_count(int tree_index) const { return path(tree_index) + plan_->width; }
    const double* uniforms(int tree_index) const {
        return uniforms_ == nullptr ? nullptr : uniforms_ + plan_->at(tree_index, 0);
    }
    const double* draft_uniforms(int tree_index) const {
        return draft_uniforms_ + plan_->at(tree_index, 0) * plan_->max_drafts;
    }

    /// Sets the nodes of a tree that grew to fewer than planned. The rows of later trees move up.
    void set_nodes(int tree_index, int nodes);
    /// Uploads a tree from host memory, with the nodes of its plan and certain drafts. `position` is the
    /// root's.
    void upload_tree(RoundMemory& memory, int tree_index, const DraftTree& tree, int position);
    /// Points `op` at the rows of a tree.
    void set_rows(kernels::RerankOp& op, int tree_index) const;
    /// Points `op` at the sets along the path of a tree that has them.
    void set_rows(kernels::SetProbabilityOp& op, int tree_index) const;

    DraftProbs draft_probs;  ///< set while trees grow; sampled_rows are its rows, or -1
    TokenSets sets;          ///< of the plan, or of the head after the drafts

  private:
    bool upload_sets(RoundMemory& memory);

    kernels::Backend* backend_ = nullptr;
    const RoundPlan* plan_ = nullptr;
    std::vector<Tree> trees_;
    int rows_ = 0, planned_rows_ = 0;
    kernels::TreeRows arrays_;
    double* uniforms_ = nullptr;        ///< [trees, width]
    double* draft_uniforms_ = nullptr;  ///< [trees, width, max_drafts]
    std::vector<int> path_;             ///< of a node, reused
    std::vector<TokenId> ids_;          ///< tokens of the latest sets of a plan
    kernels::DeviceArray<TokenId> uploaded_ids_;
};

}  // namespace draftscope

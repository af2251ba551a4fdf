#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/heads/artefact.h"
#include "engine/heads/cluster_ops.h"
#include "engine/heads/router.h"
#include "engine/heads/shortlists.h"

/// An LM head ordered by a partition of the vocabulary. Base of heads that read some parts of it (CORAL's
/// groups, DynaSpec's clusters).
namespace draftscope {

/// Clusters that one sequence's rows chose at each level of the round.
struct ClusterState final : HeadState {
    struct Level {
        std::vector<std::uint8_t> chosen;  ///< [parts + 1], 1 = by any row; the last is for tokens of no part
        double active_rows = 0;            ///< number of tokens scored
        double row_tokens = 0;             ///< of one row's clusters, mean over the rows
        std::uint64_t bytes = 0;           ///< weights read, without the router
    };
    PerLevel<Level> levels;
};

/// The LM head's rows, grouped by cluster, and the selection of candidates from some clusters.
class ClusteredVocab {
  public:
    /// Loads the partition. `name`: the tensor with each token's cluster, 0 to clusters - 1; a cluster may be
    /// empty. Tokens that the drafter's LM head lacks are in no cluster. Always-active tokens are in every
    /// row's support and form an additional last cluster.
    static Result<ClusteredVocab> make(kernels::Backend& backend, const HeadWeights& weights,
                                       const HeadArtefact& artefact, const std::string& name, int clusters);

    int clusters() const { return clusters_; }  ///< without the always-active cluster

    /// Returns the maximum number of tokens that `rows` rows with `count` clusters each choose.
    int max_tokens(int rows, int count) const { return ops_.max_tokens(rows * count); }
    /// Reserves memory for calls of up to `rows` rows with `count` clusters each.
    bool reserve(kernels::Backend& backend, int rows, int count, int k) {
        return ops_.reserve(backend, rows, count, k);
    }
    /// Enqueues the candidates from the clusters that each row chose and the always-active tokens. The
    /// call's downloads are the choices, [rows, count], ascending. Reads the union over the rows once, or, if
    /// `per_row`, each row's clusters; the result of a row is the same.
    void propose(HeadCall& call, int count, bool per_row);
    /// Stores in each sequence's ClusterState what the call read.
    void collect(const HeadReadback& back, int count, bool per_row) const;

    /// Returns the tokens of the clusters that the state's rows chose at this level; none before they chose.
    /// After the last head call of the round, that call counts.
    ActiveSet active_set(const ClusterState* state, int level, std::vector<TokenId>& memory) const;
    /// Cost of a call that reads `clusters` clusters of mean size, or the cost stored in `state`.
    HeadCost cost(const ClusterState* state, int level, double clusters) const;

  private:
    struct Cluster {
        int first_block = 0, blocks = 0;  ///< of rows_, 16 rows each; the last one may be padded
        std::vector<TokenId> ids;         ///< ascending
    };
    template <typename Visit>
    void visit_read(Rows<const std::int32_t> chosen, bool per_row, std::vector<std::uint8_t>& read,
                    Visit visit) const;
    void note(ClusterState::Level& seen, Rows<const std::int32_t> chosen, bool per_row) const;
    std::uint64_t call_bytes(Rows<const std::int32_t> chosen, bool per_row) const;
    std::uint64_t blocks_bytes(int blocks) const;

    HeadWeights weights_;
    kernels::Matrix rows_;         ///< the LM head's rows by cluster, each cluster padded to whole blocks
    std::vector<Cluster> parts_;   ///< the clusters, then the always-active tokens, if any
    std::vector<int> cluster_of_;  ///< [V]; -1 = none
    int clusters_ = 0;
    double tokens_ = 0;  ///< number of tokens in clusters
    ClusterOps ops_;
};

/// A clustered LM head; derived heads choose the clusters.
class ClusterHead : public LmHead {
  public:
    std::unique_ptr<HeadState> begin_prompt(std::span<const TokenId>, Rows<const TokenId>) final {
        return std::make_unique<ClusterState>();
    }
    HeadCost cost_at(const HeadState* state, int rows, int level) const final;
    ActiveSet active_set(const HeadState* state, int level, std::vector<TokenId>& memory) const final {
        return vocab_.active_set(static_cast<const ClusterState*>(state), level, memory);
    }

    CallShape shape(int level, int rows) const final;
    bool reserve(kernels::Backend& backend, int levels, int rows, int k) override;
    void begin(HeadCall& call) override { clear_levels<ClusterState>(call); }
    void propose(HeadCall& call) final;
    void on_verified(HeadState* state, const DraftTree&, const Outcome&) final {
        clear_levels<ClusterState>(state);
    }
    void collect(const HeadReadback& back) final { vocab_.collect(back, chosen_at(back.level), per_row_); }

  protected:
    /// Reads share_param and eos_param from `spec`. `inputs`: whether the router reads HeadCall::inputs.
    ClusterHead(const HeadSpec& spec, bool inputs);
    /// Loads the partition `name` of `clusters` clusters and its router of `inputs` inputs.
    Status load(kernels::Backend& backend, const HeadWeights& weights, const HeadArtefact& artefact,
                const std::string& name, int clusters, int inputs);
    virtual int chosen_at(int level) const = 0;  ///< number of clusters per row
    /// Writes the clusters of the call's rows to its downloads, [rows, chosen_at()], ascending.
    virtual void choose(HeadCall& call) = 0;

    ClusterRouter router_;

  private:
    bool per_row_;  ///< as in ClusteredVocab::propose()
    bool keep_ends_;
    ClusteredVocab vocab_;
};

}  // namespace draftscope

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/heads/artefact.h"
#include "engine/heads/device_head.h"
#include "engine/heads/router.h"
#include "engine/heads/shortlists.h"
#include "kernels/head_clusters.h"

/// An LM head ordered by a partition of the vocabulary. Base of heads that read some parts of it (CORAL's
/// groups, DynaSpec's clusters).
namespace draftscope {

/// Clusters that one sequence's rows chose at each level of the round.
struct ClusterState final : HeadState {
    struct Level {
        std::vector<bool> chosen;  ///< [clusters], by any row
        double active_rows = 0;    ///< number of tokens scored
        std::uint64_t bytes = 0;   ///< weights read, without the router
    };
    PerLevel<Level> levels;
};

/// The LM head's rows, grouped by cluster, and the selection of candidates from some clusters.
class ClusteredVocab {
  public:
    /// Loads the partition. `name`: the tensor with each token's cluster, 0 to clusters - 1; a cluster may be
    /// empty. Tokens that the drafter's LM head lacks are in no cluster. Always-active tokens are in every
    /// row's support and form an additional last cluster.
    static Result<ClusteredVocab> make(kernels::Exec& exec, const HeadWeights& weights,
                                       const HeadArtefact& artefact, const std::string& name, int clusters);

    int clusters() const { return clusters_; }  ///< without the always-active cluster
    bool has(TokenId token) const;

    /// Proposes from the clusters that each row chose (rows of `chosen`, ascending) and the always-active
    /// tokens. Reads the union over the rows once, or, if `per_row`, each row's clusters; the result of a row
    /// is the same. Records head, topk and gather, and stores in each row's ClusterState what was read.
    void propose(ProposeContext& context, Rows<const float> hidden, Rows<const std::int32_t> chosen,
                 bool per_row, std::span<HeadState* const> states, int k, Proposal& out);
    // Calls on a device, for rows that choose `count` clusters each (HeadThere).
    bool reserve_on_device(int rows, int count, int k) { return device_.reserve(rows_, rows, count, k); }
    int num_tokens_on_device(int rows, int count) const { return device_.max_tokens(rows * count); }
    /// The call's notes are the clusters that each row chose.
    void enqueue_on_device(DeviceLevel& call, int count, bool per_row);
    void collect_on_device(const DeviceLevelResult& back, int count, bool per_row);

    /// Returns whether the state's rows chose the token's cluster at this level; false before they chose.
    /// After the last head call of the round, that call counts.
    bool covers(const ClusterState& state, TokenId token, int level) const;
    bool active_ids(const ClusterState& state, int level, std::vector<TokenId>& out) const;
    /// Cost of a call that reads `clusters` clusters of mean size, or the cost stored in `state`.
    HeadCost cost(const ClusterState* state, int level, double clusters) const;

  private:
    struct Cluster {
        int first_block = 0, blocks = 0;  ///< of rows_, 16 rows each; the last one may be padded
        std::vector<TokenId> ids;         ///< ascending
    };
    void read(ProposeContext& context, Rows<const float> hidden, Rows<const std::int32_t> chosen, int first,
              int end, Proposal& out);
    void note(int level, Rows<const std::int32_t> chosen, bool per_row,
              std::span<HeadState* const> states) const;
    std::uint64_t call_bytes(Rows<const std::int32_t> chosen, bool per_row) const;
    std::uint64_t blocks_bytes(int blocks) const;
    void select_row(ProposeContext& context, const float* logits, std::span<const std::int32_t> chosen,
                    int row, Proposal& out);

    HeadWeights weights_;
    kernels::Matrix rows_;         ///< the LM head's rows by cluster, each cluster padded to whole blocks
    std::vector<Cluster> parts_;   ///< the clusters, then the always-active tokens
    std::vector<int> cluster_of_;  ///< [V]; -1 = none
    int clusters_ = 0;
    double tokens_ = 0;  ///< number of tokens in clusters
    std::vector<bool> in_union_;
    std::vector<int> union_,
        first_column_;  ///< clusters read by the call, and their first columns in the logits
    std::vector<int> blocks_;
    std::vector<float> logits_, row_logits_;
    std::vector<TokenId> row_ids_;
    std::vector<std::size_t> order_;  ///< ascending order of the row's ids
    kernels::DeviceClusters device_;
};

/// A clustered LM head with its device calls; derived heads choose the clusters.
class DeviceClusterHead : public DeviceHead {
  public:
    /// `per_row`: as in ClusteredVocab::propose().
    explicit DeviceClusterHead(bool per_row) : per_row_(per_row) {}
    SupportColumns support_columns(int levels) const final;
    bool reserve(kernels::Device& device, int levels, int rows, int k) final;
    int max_set_size(int level, int rows) const final {
        return vocab_.num_tokens_on_device(rows, chosen_at(level));
    }
    int num_downloads(int level, int rows) const final { return rows * chosen_at(level); }
    void enqueue(DeviceLevel& call) final;
    void collect(const DeviceLevelResult& back) final {
        vocab_.collect_on_device(back, chosen_at(back.level), per_row_);
    }

  protected:
    virtual int chosen_at(int level) const = 0;  ///< number of clusters per row
    virtual ClusterRouter& router_on_device() = 0;
    /// Writes the clusters of the call's rows to its notes, [rows, chosen_at()], ascending.
    virtual void choose_on_device(DeviceLevel& call) = 0;

    bool per_row_;
    ClusteredVocab vocab_;
};

/// Writes the `out.cols` best clusters of each row of scores, ascending; ties go to the lower cluster.
/// `order` is scratch.
void best_clusters(Rows<const float> scores, Rows<std::int32_t> out, std::vector<std::int32_t>& order);

}  // namespace draftscope

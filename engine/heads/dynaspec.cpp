#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/numel.h"
#include "engine/heads/candidates.h"
#include "engine/heads/clusters.h"
#include "engine/heads/factories.h"
#include "engine/heads/router.h"
#include "engine/heads/side_stream.h"
#include "engine/heads/synthetic_artefact.h"

namespace draftscope {
namespace {

/// Cluster budget of a draft step: kmax for the first `flat` steps, then less by factor `decay` per step, at
/// least kmin. The text of the paper that we have lacks its decay formula and numbers: our defaults.
struct Budget {
    int max_clusters = 0, min_clusters = 0, flat = 2;
    double decay = 0.7;
    int at(int level) const {
        if (level < flat) return max_clusters;
        const double left = max_clusters * std::pow(decay, level - flat + 1);
        return std::clamp(static_cast<int>(std::lround(left)), std::min(min_clusters, max_clusters),
                          max_clusters);
    }
};

/// DynaSpec (arXiv 2510.13847, section 4): a router over the token's embedding and the drafter's previous
/// hidden selects token clusters for each row. It does not depend on the current block, so it runs
/// concurrently with the backbone. On the CPU it has its own thread where the paper has a second CUDA stream.
class DynaSpecHead final : public LmHead, public DeviceClusterHead {
  public:
    DynaSpecHead(HeadArtefact artefact, int clusters, Budget budget, bool per_row)
        : DeviceClusterHead(per_row), artefact_(std::move(artefact)), clusters_(clusters), budget_(budget) {}
    ~DynaSpecHead() override { side_stream_.reset(); }  // first: its work uses the members below

    Status prepare(kernels::Exec& exec, const HeadWeights& weights) override {
        side_stream_.reset();
        running_ = 0;
        DS_TRY(check_weights(weights, "dynaspec"));
        DS_TRY(artefact_.fits(weights));
        if (budget_.max_clusters > clusters_)
            return bad_input("head dynaspec: kmax={} of {} clusters; use kmax=1..{}", budget_.max_clusters,
                             clusters_, clusters_);
        DS_ASSIGN(vocab_, ClusteredVocab::make(exec, weights, artefact_, "clusters", clusters_));
        DS_ASSIGN(router_, ClusterRouter::load(exec, weights, artefact_, 2 * weights.hidden, clusters_));
        side_stream_ = std::make_unique<SideStream>(exec, Phase::router);
        return {};
    }

    std::unique_ptr<HeadState> make_state() const override { return std::make_unique<ClusterState>(); }
    void begin_round(ProposeContext&, std::span<HeadState* const> states) override {
        for (HeadState* state : states)
            if (state != nullptr) static_cast<ClusterState&>(*state).levels.clear();
    }

    void begin_level(ProposeContext& context, Rows<const float> embeddings, Rows<const float> parent_hiddens,
                     std::span<HeadState* const>) override {
        side_stream_->wait_discard(running_);
        const int rows = embeddings.rows, d = embeddings.cols;
        inputs_.resize(2 * static_cast<std::size_t>(rows) * static_cast<std::size_t>(d));
        const Rows<float> inputs(inputs_.data(), rows, 2 * d);
        for (int r = 0; r < rows; ++r) {
            std::memcpy(inputs.row_data(r), embeddings.row_data(r), embeddings.row(r).size_bytes());
            std::memcpy(inputs.row_data(r) + d, parent_hiddens.row_data(r),
                        parent_hiddens.row(r).size_bytes());
        }
        routed_ = budget_.at(context.level);
        running_ = side_stream_->start(context, rows, [this, rows, d](kernels::Exec& exec) {
            route(exec, rows, d);
            return router_.bytes();
        });
    }

    /// Without begin_level() for these rows the router has no inputs, so every cluster is read.
    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const> states, int k,
                 Proposal& out) override {
        side_stream_->wait(context, running_);
        if (running_ == 0 || chosen().rows != hidden.rows) choose_all(hidden.rows);
        running_ = 0;
        vocab_.propose(context, hidden, chosen(), per_row_, states, k, out);
    }

    DeviceHead* device_head() override { return this; }
    bool reads_inputs() const override { return true; }
    /// On a device, too, the router runs concurrently with the drafter's layer.
    void begin(DeviceLevel& call) override {
        call.device.on_side_stream(
            [this, inputs = call.inputs, rows = call.rows, downloads = call.downloads,
             count = budget_.at(call.level)] { router_.enqueue_best(inputs, rows, count, downloads); });
    }

    HeadCost cost_at(const HeadState* state, int rows, int level) const override {
        HeadCost cost =
            vocab_.cost(static_cast<const ClusterState*>(state), level,
                        std::min<double>(clusters_, static_cast<double>(budget_.at(level)) * rows));
        cost.bytes += router_.bytes();
        cost.flops_per_row += router_.flops_per_row();
        return cost;
    }

    bool covers(const HeadState* state, TokenId token, int level) const override {
        return state == nullptr ? vocab_.has(token)
                                : vocab_.covers(static_cast<const ClusterState&>(*state), token, level);
    }
    bool active_ids(const HeadState* state, int level, std::vector<TokenId>& out) const override {
        return state != nullptr && vocab_.active_ids(static_cast<const ClusterState&>(*state), level, out);
    }

  protected:
    int chosen_at(int level) const override { return budget_.at(level); }
    ClusterRouter& router_on_device() override { return router_; }
    void choose_on_device(DeviceLevel& call) override {
        // This time is the router's exposed part.
        const DeviceSpans::Scope scope(call.spans, call.phases, Phase::router, call.level, call.rows,
                                       router_.bytes());
        call.device.join_side_stream();
    }

  private:
    /// Runs on the side stream: scores, then the clusters of each row.
    void route(kernels::Exec& exec, int rows, int d) {
        const std::size_t count = rows;
        const Rows<const float> inputs(inputs_.data(), rows, 2 * d);
        scores_.resize(count * clusters_);
        const Rows<float> scores(scores_.data(), rows, clusters_);
        router_.run(exec, inputs, scores);
        chosen_.resize(count * routed_);
        best_clusters(scores, Rows<std::int32_t>(chosen_.data(), rows, routed_), order_);
    }
    void choose_all(int rows) {
        routed_ = clusters_;
        chosen_.resize(numel(rows, clusters_));
        for (int r = 0; r < rows; ++r)
            std::iota(chosen_.begin() + std::ptrdiff_t{r} * clusters_,
                      chosen_.begin() + std::ptrdiff_t{r + 1} * clusters_, 0);
    }
    /// [rows, routed_], ascending.
    Rows<const std::int32_t> chosen() const {
        return {chosen_.data(), static_cast<int>(chosen_.size()) / std::max(routed_, 1), routed_};
    }

    HeadArtefact artefact_;
    int clusters_;
    Budget budget_;
    // Used by the side stream between begin_level() and propose().
    ClusterRouter router_;
    std::vector<float> inputs_;  ///< [rows, 2d]
    std::vector<float> scores_;
    std::vector<std::int32_t> chosen_, order_;
    int routed_ = 0;  ///< clusters per row
    SideStream::Ticket running_ = 0;
    std::unique_ptr<SideStream> side_stream_;
};

// The paper keeps the full budget for two steps, then decays it to a minimum. The text that we have lacks its
// formula and numbers.
constexpr HeadParam params[] = {
    {"clusters", 0, 1, 1 << 16, true, "clusters of the vocabulary; default: the artefact's"},
    {"r", 0, 1, 1 << 16, true, "width of the router; default: the artefact's"},
    {"kmax", 0, 1, 1 << 16, true, "clusters per row at the first draft steps; default: a quarter"},
    {"kmin", 0, 1, 1 << 16, true, "minimum of clusters per row; default: a sixteenth"},
    {"flat", 2, 0, 64, false, "draft steps with all kmax clusters"},
    {"decay", 0.7, 0, 1, true, "factor by which each later step reduces the budget"},
    share_param,
};

Result<std::unique_ptr<LmHead>> make(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    DS_ASSIGN(const int clusters, artefact.count("clusters"));
    Budget budget;
    DS_ASSIGN(budget.max_clusters, whole_param(spec, "kmax", (clusters + 3) / 4));
    DS_ASSIGN(budget.min_clusters, whole_param(spec, "kmin", (clusters + 15) / 16));
    DS_ASSIGN(budget.flat, whole_param(spec, "flat", budget.flat));
    DS_ASSIGN(budget.decay, number_param(spec, "decay", budget.decay));
    const bool per_row = word_param(spec, "share", "union") == "per-row";
    return std::unique_ptr<LmHead>(
        std::make_unique<DynaSpecHead>(std::move(artefact), clusters, budget, per_row));
}

Status synthesize(SyntheticBuilder& builder) {
    DS_ASSIGN(const int clusters, whole_param(builder.spec, "clusters", 64));
    DS_ASSIGN(const int width, whole_param(builder.spec, "r", 128));
    builder.info.parameters["r"] = std::to_string(width);
    return add_routed(builder, "clusters", clusters, 2 * builder.shape.hidden, width);
}

}  // namespace

HeadInfo describe_dynaspec() {
    return {.id = "dynaspec",
            .name = "DynaSpec",
            .paper = "DynaSpec, arXiv 2510.13847",
            .params = params,
            .rgb = 0xE69F00,
            .support = HeadSupport::dynamic,
            .required_file = RequiredFile::fitted,
            .artefact = "clusters of the vocabulary and a router",
            .fit = {.weights = FitRecipe::Weights::clusters},
            .synthesize = synthesize,
            .make = make};
}

}  // namespace draftscope

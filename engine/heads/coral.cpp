#include <utility>

#include "base/numel.h"
#include "engine/heads/candidates.h"
#include "engine/heads/clusters.h"
#include "engine/heads/factories.h"
#include "engine/heads/router.h"
#include "engine/heads/synthetic_artefact.h"

namespace draftscope {
namespace {

/// CORAL's LM-head router (arXiv 2502.16880). A feed-forward network over the drafter's hidden selects a few
/// of N disjoint groups of the vocabulary, and only their rows are multiplied. The construction of the
/// groups, N, the number selected and the router's activation are not confirmed: our defaults.
class CoralHead final : public LmHead, public DeviceClusterHead {
  public:
    CoralHead(HeadArtefact artefact, int groups, int active, bool per_row)
        : DeviceClusterHead(per_row), artefact_(std::move(artefact)), groups_(groups), active_(active) {}

    Status prepare(kernels::Exec& exec, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, "coral"));
        DS_TRY(artefact_.fits(weights));
        if (active_ > groups_)
            return bad_input("head coral: active={} of {} groups; use active=1..{}", active_, groups_,
                             groups_);
        DS_ASSIGN(vocab_, ClusteredVocab::make(exec, weights, artefact_, "groups", groups_));
        DS_ASSIGN(router_, ClusterRouter::load(exec, weights, artefact_, weights.hidden, groups_));
        return {};
    }

    std::unique_ptr<HeadState> make_state() const override { return std::make_unique<ClusterState>(); }
    void begin_round(ProposeContext&, std::span<HeadState* const> states) override {
        for (HeadState* state : states)
            if (state != nullptr) static_cast<ClusterState&>(*state).levels.clear();
    }

    void propose(ProposeContext& context, Rows<const float> hidden, std::span<HeadState* const> states, int k,
                 Proposal& out) override {
        vocab_.propose(context, hidden, choose(context, hidden), per_row_, states, k, out);
    }

    DeviceHead* device_head() override { return this; }

    HeadCost cost_at(const HeadState* state, int rows, int level) const override {
        HeadCost cost = vocab_.cost(static_cast<const ClusterState*>(state), level,
                                    std::min<double>(groups_, static_cast<double>(active_) * rows));
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
    int chosen_at(int) const override { return active_; }
    ClusterRouter& router_on_device() override { return router_; }
    void choose_on_device(DeviceLevel& call) override {
        const DeviceSpans::Scope scope(call.spans, call.phases, Phase::router, call.level, call.rows,
                                       router_.bytes());
        router_.enqueue_best(call.x, call.rows, active_, call.downloads);
    }

  private:
    /// Returns the groups of each row, ascending, [rows, active_]; valid until the next call.
    Rows<const std::int32_t> choose(ProposeContext& context, Rows<const float> hidden) {
        PhaseScope scope(context.phases, Phase::router, context.level, hidden.rows, router_.bytes());
        scores_.resize(numel(hidden.rows, groups_));
        const Rows<float> scores(scores_.data(), hidden.rows, groups_);
        router_.run(context.exec, hidden, scores);
        chosen_.resize(numel(hidden.rows, active_));
        const Rows<std::int32_t> chosen(chosen_.data(), hidden.rows, active_);
        best_clusters(scores, chosen, order_);
        return chosen;
    }

    HeadArtefact artefact_;
    int groups_, active_;
    ClusterRouter router_;
    std::vector<float> scores_;
    std::vector<std::int32_t> chosen_, order_;
};

// The paper only states the router's shape. Groups, their number and how many are read are not confirmed.
constexpr HeadParam params[] = {
    {"groups", 0, 1, 1 << 16, true, "groups of the vocabulary; default: the artefact's (16)"},
    {"active", 0, 1, 1 << 16, true, "groups read per row; default: a quarter"},
    share_param,
};

Result<std::unique_ptr<LmHead>> make(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    DS_ASSIGN(const int groups, artefact.count("groups"));
    DS_ASSIGN(const int active, whole_param(spec, "active", (groups + 3) / 4));
    const bool per_row = word_param(spec, "share", "union") == "per-row";
    return std::unique_ptr<LmHead>(std::make_unique<CoralHead>(std::move(artefact), groups, active, per_row));
}

Status synthesize(SyntheticBuilder& builder) {
    DS_ASSIGN(const int groups, whole_param(builder.spec, "groups", 16));
    return add_routed(builder, "groups", groups, builder.shape.hidden, builder.shape.hidden);
}

}  // namespace

HeadInfo describe_coral() {
    return {.id = "coral",
            .name = "CORAL",
            .paper = "CORAL, arXiv 2502.16880",
            .params = params,
            .rgb = 0xF0E442,
            .support = HeadSupport::dynamic,
            .required_file = RequiredFile::fitted,
            .artefact = "groups of the vocabulary and a router",
            .fit = {.weights = FitRecipe::Weights::groups},
            .synthesize = synthesize,
            .make = make};
}

}  // namespace draftscope

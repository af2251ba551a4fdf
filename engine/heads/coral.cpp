#include <utility>

#include "engine/heads/clusters.h"
#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/synthetic_artefact.h"

namespace draftscope {
namespace {

/// CORAL's LM-head router (arXiv 2502.16880). A feed-forward network over the drafter's hidden selects a few
/// of N disjoint groups of the vocabulary, and only their rows are multiplied. The construction of the
/// groups, N, the number selected and the router's activation are not confirmed: our defaults.
class CoralHead final : public ClusterHead {
  public:
    CoralHead(HeadArtefact artefact, int groups, int active, const HeadSpec& spec)
        : ClusterHead(spec, false), artefact_(std::move(artefact)), groups_(groups), active_(active) {}

    Status prepare(kernels::Backend& backend, const HeadWeights& weights) override {
        DS_TRY(check_weights(weights, "coral"));
        DS_TRY(artefact_.fits(weights));
        if (active_ > groups_)
            return bad_input("head coral: active={} of {} groups; use active=1..{}", active_, groups_,
                             groups_);
        return load(backend, weights, artefact_, "groups", groups_, weights.hidden);
    }

  private:
    int chosen_at(int) const override { return active_; }
    void choose(HeadCall& call) override {
        const DeviceSpans::Scope scope(call.spans, call.phases, Phase::router, call.level, call.rows,
                                       router_.bytes());
        router_.enqueue_best(call.backend, call.x, call.rows, active_, call.downloads);
    }

    HeadArtefact artefact_;
    int groups_, active_;
};

// The paper only states the router's shape. Groups, their number and how many are read are not confirmed.
constexpr HeadParam coral_params[] = {
    {"groups", 0, 1, 1 << 16, true, "groups of the vocabulary; default: the file's (16)"},
    {"active", 0, 1, 1 << 16, true, "groups read per row; default: a quarter"},
    share_param,
    eos_param,
};

Result<std::unique_ptr<LmHead>> make_coral(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    DS_ASSIGN(const int groups, artefact.count("groups"));
    DS_ASSIGN(const int active, int_param(spec, "active", (groups + 3) / 4));
    return std::unique_ptr<LmHead>(std::make_unique<CoralHead>(std::move(artefact), groups, active, spec));
}

Status synthesize_coral(SyntheticBuilder& builder) {
    DS_ASSIGN(const int groups, int_param(builder.spec, "groups", 16));
    return add_routed(builder, "groups", groups, builder.shape.hidden, builder.shape.hidden);
}

}  // namespace

HeadInfo describe_coral() {
    return {.id = "coral",
            .name = "CORAL",
            .paper = "CORAL, arXiv 2502.16880",
            .params = coral_params,
            .size = {.name = "active", .values = {1, 2, 4, 8}},
            .rgb = 0xF0E442,
            .support = HeadSupport::dynamic,
            .required_file = RequiredFile::fitted,
            .artefact = "groups of the vocabulary and a router",
            .fit = {.kinds = FitRecipe::groups},
            .synthesize = synthesize_coral,
            .make = make_coral};
}

}  // namespace draftscope

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/numel.h"
#include "engine/heads/clusters.h"
#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
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
class DynaSpecHead final : public ClusterHead {
  public:
    DynaSpecHead(HeadArtefact artefact, int clusters, Budget budget, const HeadSpec& spec)
        : ClusterHead(spec, true), artefact_(std::move(artefact)), clusters_(clusters), budget_(budget) {}
    ~DynaSpecHead() override { side_stream_.reset(); }  // first: its work uses the members

    Status prepare(kernels::Backend& backend, const HeadWeights& weights) override {
        side_stream_.reset();
        running_ = 0;
        DS_TRY(check_weights(weights, "dynaspec"));
        DS_TRY(artefact_.fits(weights));
        if (budget_.max_clusters > clusters_)
            return bad_input("head dynaspec: kmax={} of {} clusters; use kmax=1..{}", budget_.max_clusters,
                             clusters_, clusters_);
        width_ = 2 * weights.hidden;
        DS_TRY(load(backend, weights, artefact_, "clusters", clusters_, width_));
        side_stream_ = std::make_unique<SideStream>(backend, Phase::router);
        return {};
    }

    bool reserve(kernels::Backend& backend, int levels, int rows, int k) override {
        side_stream_->wait_discard(running_);  // of a round that failed
        if (backend.is_host()) {
            inputs_.resize(std::max(inputs_.size(), numel(rows, width_)));
            best_.resize(std::max(best_.size(), numel(rows, budget_.max_clusters)));
        }
        return ClusterHead::reserve(backend, levels, rows, k);
    }
    void begin(HeadCall& call) override {
        ClusterHead::begin(call);
        side_stream_->wait_discard(running_);
        routed_ = {call.inputs, call.rows, budget_.at(call.level), call.downloads};
        // A round that fails gives its memory back while the thread works, which therefore has its own.
        if (call.backend.is_host()) {
            std::copy_n(call.inputs, numel(call.rows, width_), inputs_.data());
            routed_.inputs = inputs_.data();
            routed_.best = best_.data();
        }
        running_ = side_stream_->start(call, router_.bytes(), [this](kernels::Backend& backend) {
            router_.enqueue_best(backend, routed_.inputs, routed_.rows, routed_.count, routed_.best);
        });
    }

  private:
    int chosen_at(int level) const override { return budget_.at(level); }
    void choose(HeadCall& call) override {
        side_stream_->join(call, running_, router_.bytes());
        if (call.backend.is_host())
            std::copy_n(best_.data(), numel(call.rows, routed_.count), call.downloads);
    }

    HeadArtefact artefact_;
    int clusters_;
    Budget budget_;
    struct Routed {
        const float* inputs = nullptr;
        int rows = 0, count = 0;
        std::int32_t* best = nullptr;
    };
    Routed routed_;                   ///< of the level; used by the side stream between begin() and propose()
    int width_ = 0;                   ///< columns of a row of inputs, 2d
    std::vector<float> inputs_;       ///< on the host: of the level
    std::vector<std::int32_t> best_;  ///< on the host: its clusters
    SideStream::Ticket running_ = 0;
    std::unique_ptr<SideStream> side_stream_;
};

// The paper keeps the full budget for two steps, then decays it to a minimum. The text that we have lacks its
// formula and numbers, but table 1 has a mean shortlist of 27,344 of 128,256 tokens, 21.3 %. On the demo's 64
// clusters with eagle3, kmax=22 gives a row 21.3 % over chain=6 and 21.2 % over paper:dynaspec.
constexpr HeadParam dynaspec_params[] = {
    {"clusters", 0, 1, 1 << 16, true, "clusters of the vocabulary; default: the file's"},
    {"r", 0, 1, 1 << 16, true, "width of the router; default: the file's"},
    {"kmax", 0, 1, 1 << 16, true,
     "clusters per row at the first draft steps; default: 11 of 32, for the paper's mean share of the "
     "vocabulary over six levels"},
    {"kmin", 0, 1, 1 << 16, true, "minimum of clusters per row; default: a sixteenth"},
    {"flat", 2, 0, 64, false, "draft steps with all kmax clusters"},
    {"decay", 0.7, 0, 1, true, "factor by which each later step reduces the budget"},
    share_param,
    eos_param,
};

Result<std::unique_ptr<LmHead>> make_dynaspec(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_ASSIGN(HeadArtefact artefact, required_artefact(spec, artefacts));
    DS_ASSIGN(const int clusters, artefact.count("clusters"));
    Budget budget;
    DS_ASSIGN(budget.max_clusters, int_param(spec, "kmax", (11 * clusters + 31) / 32));
    DS_ASSIGN(budget.min_clusters, int_param(spec, "kmin", (clusters + 15) / 16));
    DS_ASSIGN(budget.flat, int_param(spec, "flat", budget.flat));
    DS_ASSIGN(budget.decay, number_param(spec, "decay", budget.decay));
    return std::unique_ptr<LmHead>(
        std::make_unique<DynaSpecHead>(std::move(artefact), clusters, budget, spec));
}

Status synthesize_dynaspec(SyntheticBuilder& builder) {
    DS_ASSIGN(const int clusters, int_param(builder.spec, "clusters", 64));
    DS_ASSIGN(const int width, int_param(builder.spec, "r", 128));
    builder.info.parameters["r"] = std::to_string(width);
    return add_routed(builder, "clusters", clusters, 2 * builder.shape.hidden, width);
}

}  // namespace

HeadInfo describe_dynaspec() {
    return {.id = "dynaspec",
            .name = "DynaSpec",
            .paper = "DynaSpec, arXiv 2510.13847",
            .params = dynaspec_params,
            .size = {.name = "kmax", .values = {8, 16, 24, 32}},
            .rgb = 0xE69F00,
            .support = HeadSupport::dynamic,
            .required_file = RequiredFile::fitted,
            .artefact = "clusters of the vocabulary and a router",
            .fit = {.kinds = FitRecipe::clusters},
            .synthesize = synthesize_dynaspec,
            .make = make_dynaspec};
}

}  // namespace draftscope

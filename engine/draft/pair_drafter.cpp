#include <algorithm>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "engine/draft/registry.h"
#include "engine/draft/text_drafter.h"

namespace draftscope {
namespace {

struct PairState final : DrafterState {
    std::unique_ptr<DrafterState> text, other;
    DraftTree draft;              ///< of the text drafter
    bool is_text_better = false;  ///< the round's tree is `draft`
};

/// Drafts each round with a text drafter or with another drafter. The text's chain is taken if its score
/// exceeds the length that the other would draft (Arctic's hybrid of suffix decoding and a draft model). A
/// drafter without scores is taken whenever it drafts, as in llama.cpp.
class PairDrafter final : public Drafter {
  public:
    /// The ids are those of the registry; `context` is the target's number of positions.
    PairDrafter(std::unique_ptr<TextDrafter> text, std::string_view text_id, std::unique_ptr<Drafter> other,
                std::string_view other_id, int context)
        : Drafter(properties_of(*text, *other)),
          text_(std::move(text)),
          other_(std::move(other)),
          text_id_(text_id),
          other_id_(other_id),
          context_(context) {}

    void begin_run() override {
        text_->begin_run();
        other_->begin_run();
    }
    std::unique_ptr<DrafterState> make_state(int slots, bool keeps_slots) const override {
        auto state = std::make_unique<PairState>();
        state->text = text_->make_state(slots, keeps_slots);
        state->other = other_->make_state(slots, keeps_slots);
        return state;
    }
    Status begin(DraftContext& context, std::span<DraftJob> jobs) override;
    Status enqueue(DraftContext& context, std::span<DraftJob> jobs, RoundStep& step) override {
        list_jobs(jobs);
        return with_other(jobs, [&] { return other_->enqueue(context, jobs, step); });
    }
    Status collect(const RoundStep& step, std::span<DraftJob> jobs) override {
        return other_->collect(step, jobs);
    }

  private:
    static DrafterProperties properties_of(const TextDrafter& text, const Drafter& other) {
        DrafterProperties out = other.properties();
        out.nested_trees = false;
        out.order_matters = out.order_matters || text.properties().order_matters;
        return out;
    }
    void list_jobs(std::span<DraftJob> jobs);
    TreeSpec chain_for(const DraftJob& job) const;
    Status draft_texts(DraftContext& context, std::span<DraftJob> jobs);
    Status with_other(std::span<DraftJob> jobs, FunctionRef<Status()> call);
    void take_text(DraftJob& job, PairState& state) const;

    struct Shown {
        PairState* state;
        TreeSpec tree;
    };
    std::unique_ptr<TextDrafter> text_;
    std::unique_ptr<Drafter> other_;
    std::string_view text_id_, other_id_;
    int context_;
    std::vector<Shown> shown_;  ///< of the jobs, while they are shown to one of the drafters
};

void PairDrafter::list_jobs(std::span<DraftJob> jobs) {
    shown_.clear();
    for (const DraftJob& job : jobs) shown_.push_back({static_cast<PairState*>(job.state), job.tree});
}

/// Returns the longest chain that the text drafter may draft: of its own length, or of the round's tree.
TreeSpec PairDrafter::chain_for(const DraftJob& job) const {
    const int of_tree = std::min(job.tree.levels(), job.tree.nodes - 1);
    // A draft at depth t is followed by a bonus, as in live rounds.
    const int levels = std::min(text_->own_length() > 0 ? text_->own_length() : of_tree,
                                context_ - static_cast<int>(job.tokens.size()) - 1);
    TreeSpec chain;
    chain.depth = std::max(levels, 1) - 1;
    chain.topk = 1;
    chain.nodes = std::max(levels, 0) + 1;
    return chain;
}

/// Leaves the text drafter's drafts in the states, and whether they are better.
Status PairDrafter::draft_texts(DraftContext& context, std::span<DraftJob> jobs) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        jobs[i].state = shown_[i].state->text.get();
        jobs[i].tree = chain_for(jobs[i]);
    }
    DraftContext unobserved = context;
    unobserved.observer = nullptr;
    const Status status = text_->begin(unobserved, jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        DraftJob& job = jobs[i];
        auto& [state, tree] = shown_[i];
        job.state = state;
        job.tree = tree;
        job.is_known = job.own_length = false;
        job.drafter = {};
        std::swap(job.out, state->draft);
        const int promised = tree.nodes > 1 ? tree.levels() : 0;
        state->is_text_better = job.score > static_cast<float>(promised);
    }
    return status;
}

/// Calls the other drafter with its own states. It only catches up where the text's draft is better.
Status PairDrafter::with_other(std::span<DraftJob> jobs, FunctionRef<Status()> call) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        jobs[i].state = shown_[i].state->other.get();
        if (shown_[i].state->is_text_better) jobs[i].tree = clip_tree(jobs[i].tree, 0);
    }
    const Status status = call();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        jobs[i].state = shown_[i].state;
        if (shown_[i].state->is_text_better) jobs[i].tree = shown_[i].tree;
    }
    return status;
}

void PairDrafter::take_text(DraftJob& job, PairState& state) const {
    std::swap(job.out, state.draft);
    job.rows_per_call.clear();
    job.is_known = true;
    job.drafter = text_id_;
    job.own_length = text_->own_length() > 0;
}

Status PairDrafter::begin(DraftContext& context, std::span<DraftJob> jobs) {
    list_jobs(jobs);
    DS_TRY(draft_texts(context, jobs));
    DS_TRY(with_other(jobs, [&] { return other_->begin(context, jobs); }));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        DraftJob& job = jobs[i];
        PairState& state = *shown_[i].state;
        // Another drafter of the host may have drafted nothing.
        if (job.is_known && job.out.size() == 1 && state.draft.size() > 1) state.is_text_better = true;
        if (!state.is_text_better) {
            if (job.drafter.empty()) job.drafter = other_id_;
            continue;
        }
        take_text(job, state);
        if (context.observer != nullptr)
            context.observer->level_done(job.sequence, 0, [&] { return job.out; });
    }
    return {};
}

/// `path`: "TEXT+OTHER", the specs of two drafters, of which check_pair() has checked the first.
Result<std::unique_ptr<Drafter>> make_pair_drafter(const std::string& path, const Target& target,
                                                   kernels::Backend& backend) {
    const std::size_t plus = path.find('+');
    const std::string text = path.substr(0, plus), other = path.substr(plus + 1);
    DS_ASSIGN(auto first, make_drafter(text, "", target, backend));
    DS_ASSIGN(auto second, make_drafter(other, "", target, backend));
    std::unique_ptr<TextDrafter> drafter(static_cast<TextDrafter*>(first.release()));
    return std::unique_ptr<Drafter>(std::make_unique<PairDrafter>(std::move(drafter), drafter_traits(text).id,
                                                                  std::move(second), drafter_traits(other).id,
                                                                  target.config().context));
}

}  // namespace

DrafterInfo describe_pair() {
    return {.id = "pair",
            .name = "Best of two",
            .help =
                "the better of two drafts in each round: pair:suffix+DRAFTER takes the text's draft if its "
                "score exceeds the tree's depth, as Arctic does; pair:ngram+DRAFTER takes any that ngram "
                "finds, as llama.cpp does (pair:suffix+eagle3, pair:ngram:llama.cpp+draft-model:FILE)",
            .usual = "suffix+eagle3",
            .make = make_pair_drafter};
}

}  // namespace draftscope

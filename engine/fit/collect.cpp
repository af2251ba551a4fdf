#include "engine/fit/collect.h"

#include <algorithm>
#include <optional>

#include "base/numel.h"
#include "engine/fit/linalg.h"
#include "engine/verify/verify.h"
#include "kernels/host_rows.h"

namespace draftscope::fit {
namespace {

/// A text that is drafted over. As head state it tells the collecting head which text a row belongs to.
struct Lane final : HeadState {
    FitText text;
    std::unique_ptr<DrafterState> drafter;
    int slots = 0;   ///< verified slots that the drafter has processed
    int anchor = 0;  ///< root of the round
    bool held_out = false;

    /// The text's token at draft level `level` of the round; absent after the end of the text.
    std::optional<TokenId> next(int level) const {
        const std::size_t at = anchor + 1 + level;
        if (at >= text.tokens.size()) return std::nullopt;
        return text.tokens[at];
    }
};

/// Replaces the head and stores its inputs. On text rows it proposes the text's token, otherwise as the full
/// head.
class CollectingHead final : public LmHead {
  public:
    CollectingHead(const HeadWeights& weights, const CollectOptions& options, Samples& out)
        : LmHead({.inputs = options.router_inputs}), weights_(weights), options_(options), out_(out) {}

    void follow_text(bool follow) { follow_text_ = follow; }
    /// Returns false after a row with NaN.
    bool numbers() const { return numbers_; }

    Status prepare(kernels::Backend&, const HeadWeights&) override { return {}; }
    CallShape shape(int, int) const override { return {}; }
    bool reserve(kernels::Backend& backend, int, int, int) override { return backend.is_host(); }
    void begin(HeadCall& call) override { inputs_ = call.inputs; }
    void propose(HeadCall& call) override {
        leave_no_candidates(call, 0, call.rows);
        const int d = weights_.hidden;
        const Rows<const float> hidden(call.x.floats, call.rows, d, kernels::padded_columns(d));
        lanes_.clear();
        for (const HeadSequence& sequence : call.sequences)
            lanes_.insert(lanes_.end(), sequence.rows, static_cast<const Lane*>(sequence.state));
        if (follow_text_)
            propose_text(hidden, call);
        else
            propose_best(hidden, call);
    }
    HeadCost cost_at(const HeadState*, int, int) const override { return {}; }
    ActiveSet active_set(const HeadState*, int, std::vector<TokenId>&) const override {
        return {.all_below = weights_.vocab};
    }

  private:
    void propose_text(Rows<const float> hidden, HeadCall& call) {
        for (int r = 0; r < hidden.rows; ++r) {
            const Lane& lane = *lanes_[r];
            call.sums[r] = 0.0f;
            const std::optional<TokenId> token = lane.next(call.level);
            if (!token) continue;
            const std::size_t first = numel(r, call.k);
            call.ids[first] = *token;
            call.logits[first] = 0.0f;
            keep(out_.text, hidden.row(r), lane, r, call.level);
            out_.text.teacher.append(lane.text.hidden.row(lane.anchor + call.level));
            out_.text.token.push_back(*token);
        }
    }

    void propose_best(Rows<const float> hidden, HeadCall& call) {
        const kernels::Matrix& head = *weights_.lm_head;
        multiply(call.backend, head, hidden, logits_);
        const int rows = weights_.row_ids.empty() ? weights_.vocab : head.n();
        const Rows<const float> real(logits_.data.data(), hidden.rows, rows, head.n());
        kernels::logsumexp(call.backend.pool(), real, {call.sums, numel(hidden.rows, 1)});
        const int best = std::min(rows, std::max(call.k, options_.label_topk));
        best_.find(call.backend, real, best);
        for (int r = 0; r < hidden.rows; ++r) {
            const auto token = [&](int c) {
                const std::int32_t row = best_.ids[numel(r, best) + c];
                return weights_.row_ids.empty() ? row : weights_.row_ids[row];
            };
            for (int c = 0; c < std::min(call.k, best); ++c) {
                const std::size_t to = numel(r, call.k) + c;
                call.ids[to] = token(c);
                call.logits[to] = best_.values.row(r)[c];
            }
            keep(out_.draft, hidden.row(r), *lanes_[r], r, call.level);
            for (int c = 0; c < options_.label_topk; ++c)
                out_.draft.top.push_back(c < best ? token(c) : no_token);
        }
    }

    void keep(SampleRows& rows, std::span<const float> hidden, const Lane& lane, int row, int level) {
        numbers_ = numbers_ && !has_nan(hidden);
        rows.hidden.append(hidden);
        rows.level.push_back(static_cast<std::uint8_t>(std::min(level, 255)));
        rows.held_out.push_back(lane.held_out ? 1 : 0);
        out_.levels = std::max(out_.levels, level + 1);
        if (!options_.router_inputs) return;
        const std::size_t d = weights_.hidden;
        const float* const inputs = inputs_ + numel(row, 2 * d);
        rows.embedding.append({inputs, d});
        rows.parent.append({inputs + d, d});
    }

    const HeadWeights& weights_;
    const CollectOptions& options_;
    Samples& out_;
    bool follow_text_ = true, numbers_ = true;
    Dense logits_;
    const float* inputs_ = nullptr;   ///< HeadCall::inputs of the level
    std::vector<const Lane*> lanes_;  ///< of each row
    BestColumns best_;
};

class Collector {
  public:
    Collector(kernels::Backend& backend, Drafter& drafter, const HeadWeights& weights, int context,
              TextSource& texts, const CollectOptions& options, const JobHooks& hooks)
        : backend_(backend),
          drafter_(drafter),
          drafting_(drafter),
          context_(context),
          texts_(texts),
          options_(options),
          split_(split_texts(texts, options.hold_out)),
          hooks_(hooks),
          samples_(weights.hidden, options.label_topk),
          head_(weights, options_, samples_) {}

    Result<Samples> run() {
        DS_TRY(plan());
        std::vector<Lane> lanes(std::max(1, options_.lanes));
        std::vector<Lane*> active;
        for (Lane& lane : lanes) {
            DS_ASSIGN(const bool filled, fill(lane));
            if (filled) active.push_back(&lane);
        }
        while (!active.empty()) {
            DS_TRY(hooks_.check());
            hooks_.report(planned_ > 0 ? std::min(1.0, static_cast<double>(samples_.anchors) /
                                                           static_cast<double>(planned_))
                                       : -1.0,
                          "running the drafter over the recording");
            DS_TRY(round(active));
            std::vector<Lane*> remaining;
            for (Lane* lane : active) {
                if (!advance(*lane)) {
                    DS_ASSIGN(const bool filled, fill(*lane));
                    if (!filled) continue;
                }
                remaining.push_back(lane);
            }
            active = std::move(remaining);
        }
        if (samples_.text.rows() + samples_.draft.rows() == 0)
            return bad_input(
                "the recording has no draft steps: its texts end before a round fits; record longer texts");
        return std::move(samples_);
    }

  private:
    Status plan() {
        std::int64_t positions = 0;
        const std::vector<int>& usable = split_.usable();
        for (const int t : usable) positions += texts_.generated(t) - 1;
        if (usable.size() < 2)
            return bad_input(
                "the recording has {} texts with at least two generated tokens; fitting needs two or more, "
                "one of them for the report",
                usable.size());
        stride_ = static_cast<int>(
            std::max<std::int64_t>(1, (positions + options_.anchors - 1) / std::max(options_.anchors, 1)));
        planned_ = positions / stride_;
        samples_.prompts = static_cast<int>(usable.size());
        return {};
    }

    /// Loads the next text into a lane; false = none is left.
    Result<bool> fill(Lane& lane) {
        const std::vector<int>& usable = split_.usable();
        while (next_text_ < static_cast<int>(usable.size())) {
            const int ordinal = next_text_++;
            DS_ASSIGN(lane.text, texts_.load(usable[ordinal]));
            // The target may have another hidden size than the drafter.
            if (samples_.text.teacher.rows() == 0) samples_.text.teacher = Bf16Rows(lane.text.hidden.cols);
            lane.held_out = split_.held_out(ordinal);
            samples_.held_out_prompts += lane.held_out ? 1 : 0;
            const auto tokens = static_cast<int>(lane.text.tokens.size());
            lane.drafter = drafter_.make_state(tokens + options_.tree.drafting_nodes() + levels() + 1);
            lane.slots = 0;
            // Rounds begin after the first generated token, which comes from prefill. Texts start at
            // different positions, or a stride would use the same positions of every answer.
            lane.anchor = lane.text.prompt_tokens + ordinal % stride_ - stride_;
            if (advance(lane)) return true;
        }
        return false;
    }

    /// Moves to the next anchor. False if no token follows it or a round has no room.
    bool advance(Lane& lane) const {
        lane.anchor += stride_;
        const auto tokens = static_cast<int>(lane.text.tokens.size());
        return lane.anchor + 1 < tokens && lane.anchor + levels() < context_;
    }

    Status draft(std::span<DraftJob> jobs, TreeSpec tree, bool follow_text) {
        head_.follow_text(follow_text);
        DraftContext context{backend_, phases_, &head_, tree, nullptr};
        for (DraftJob& job : jobs) job.tree = tree;
        DS_TRY(drafting_.draft(context, jobs));
        if (head_.numbers()) return {};
        return failed("the drafter's output is not numbers: its weights contain NaN; check its files");
    }

    Status round(std::span<Lane* const> lanes) {
        std::vector<DraftJob> jobs;
        for (Lane* lane : lanes) {
            DraftJob job;
            job.sequence = static_cast<int>(jobs.size());
            job.tokens = std::span(lane->text.tokens).first(static_cast<std::size_t>(lane->anchor) + 1);
            const int new_slots = lane->anchor - lane->slots;
            if (drafter_.needs_hidden())
                job.new_hidden = lane->text.hidden.view().slice(lane->slots, new_slots);
            if (!drafter_.aux_layers().empty())
                job.new_aux = lane->text.aux.view().slice(lane->slots, new_slots);
            lane->slots = lane->anchor;
            job.state = lane->drafter.get();
            job.head_state = lane;
            jobs.push_back(std::move(job));
        }
        const bool drafts = options_.draft_every > 0 && rounds_++ % options_.draft_every == 0;
        if (options_.text_rows)
            DS_TRY(draft(jobs, TreeSpec{options_.text_levels - 1, 1, options_.text_levels + 1}, true));
        if (drafts) DS_TRY(draft(jobs, options_.tree, false));
        if (!options_.text_rows && !drafts) DS_TRY(draft(jobs, TreeSpec{0, 1, 1}, false));  // catches up
        samples_.anchors += static_cast<std::int64_t>(jobs.size());
        return {};
    }

    int levels() const { return std::max(options_.text_levels, options_.tree.levels()); }

    kernels::Backend& backend_;
    Drafter& drafter_;
    DraftRunner drafting_;
    int context_;
    TextSource& texts_;
    CollectOptions options_;
    TextSplit split_;
    const JobHooks& hooks_;
    Samples samples_;
    CollectingHead head_;
    PhaseRecorder phases_;
    int next_text_ = 0;
    int stride_ = 1;
    std::int64_t planned_ = 0;
    std::int64_t rounds_ = 0;  ///< total over all lanes
};

}  // namespace

TextSplit split_texts(const TextSource& texts, HoldOut hold_out) {
    std::vector<int> generated;
    for (int t = 0; t < texts.texts(); ++t) generated.push_back(texts.generated(t));
    return {generated, hold_out};
}

Result<Samples> collect_samples(kernels::Backend& backend, Drafter& drafter, const HeadWeights& weights,
                                int context, TextSource& texts, const CollectOptions& options,
                                const JobHooks& hooks) {
    if (!drafter.uses_head()) return bad_input("--drafter: this drafter has no LM head to fit");
    return Collector(backend, drafter, weights, context, texts, options, hooks).run();
}

}  // namespace draftscope::fit

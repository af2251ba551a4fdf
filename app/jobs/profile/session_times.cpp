#include "app/jobs/profile/session_times.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/clock.h"
#include "base/phase.h"
#include "base/rng.h"
#include "engine/draft/tree_levels.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {
namespace {

constexpr int min_rounds = 2;                  // our default, as is the time after which a session may end
constexpr TimeNs long_session = 3 * ns_per_s;  // of counted steps
constexpr std::uint64_t prompt_seed = 11;
constexpr int ngram_period = 12;  // repeated tokens, so that drafters without a model find drafts

bool is_head_work(Phase phase) {
    return phase == Phase::router || phase == Phase::head || phase == Phase::topk || phase == Phase::gather;
}

/// Times of one step by draft level. The layers' rows are those of their spans.
struct LevelTimes {
    double backbone_ms = 0, head_ms = 0, rows = 0;
};

/// Collects the times of full steps. Stops the session through its gate when it has enough of them.
class StepTimes final : public RecordSink {
  public:
    StepTimes(const ProfileSession& session, bool drafts, ControlPass& control, DebugGate& gate,
              const JobHooks& hooks)
        : session_(session),
          nodes_(drafts ? session.tree.nodes : 1),
          control_(control),
          gate_(gate),
          hooks_(hooks) {}

    void push(Record record) override {
        if (hooks_.is_cancelled()) gate_.cancel();
        const auto* step = std::get_if<StepRecord>(&record);
        if (step == nullptr) return;
        const auto after = control_.run();
        if (!after.ok()) {
            status_ = after.error();
            return gate_.cancel();
        }
        around_ms_ = 0.5 * (before_ms_ + *after);
        before_ms_ = *after;
        if (!step->step.time_counts()) return;
        const bool full =
            static_cast<int>(step->rounds.size()) == session_.batch &&
            std::all_of(step->rounds.begin(), step->rounds.end(),
                        [&](const RoundRecord& round) { return round.round.tree_nodes == nodes_; });
        if (!full) return;
        add(*step);
        ++counted_;
        total_ns_ += step->step.end_ns - step->step.start_ns;
        if (counted_ >= session_.rounds || (counted_ >= min_rounds && total_ns_ > long_session))
            gate_.cancel();
    }

    Result<SessionTimes> take() {
        DS_TRY(status_);
        SessionTimes out;
        for (auto& [key, samples] : samples_) {
            const auto& [part, first_level, rows] = key;
            if (static_cast<int>(samples.size()) < std::min(min_rounds, session_.rounds)) continue;
            CostSizes at;
            at.rows = rows;
            at.first_level = first_level;
            if (part != CostPart::head) {
                at.batch = session_.batch;
                at.context = context_ / counted_;
            }
            out.points.push_back({part, controlled_point(at, samples)});
        }
        if (counted_ > 0) out.control_ms = control_ms_ / counted_;
        if (evals_ > 0) out.active_rows = active_rows_ / evals_;
        return out;
    }

  private:
    void add(const StepRecord& step) {
        control_ms_ += around_ms_;
        double verify = 0, parts = 0;
        std::map<int, LevelTimes> levels;
        for (const SpanRow& span : step.spans) {
            if (span.nesting > 0 || span.lane != static_cast<int>(Lane::critical)) continue;
            const auto phase = static_cast<Phase>(span.phase_id);
            const double ms = milliseconds(span.end_ns - span.start_ns);
            if (phase == Phase::verify) {
                verify += ms;
            } else if (phase == Phase::backbone) {
                levels[span.level].backbone_ms += ms;
                levels[span.level].rows += span.rows;
            } else if (is_head_work(phase)) {
                levels[span.level].head_ms += ms;
            } else {
                continue;
            }
            parts += ms;
        }
        for (const auto& [level, times] : levels) {
            const CostPart part = level == 0 ? CostPart::catch_up : CostPart::level;
            if (times.rows > 0) sample(part, false, times.rows, times.backbone_ms);
            const int width = width_at(session_.tree, level) * session_.batch;
            if (times.head_ms > 0) sample(CostPart::head, level == 0, width, times.head_ms);
        }
        const int rows = nodes_ * session_.batch;
        sample(CostPart::verify, false, rows, verify);
        const StepRow& row = step.step;
        sample(CostPart::overhead, false, rows, milliseconds(row.busy_ns()) - parts);
        for (const RoundRecord& round : step.rounds) {
            context_ += static_cast<double>(round.round.context_length) / session_.batch;
            for (const HeadEvalRow& eval : round.head_evals) {
                active_rows_ += eval.active_rows;
                ++evals_;
            }
        }
    }
    void sample(CostPart part, bool first_level, double rows, double ms) {
        samples_[{part, first_level, rows}].push_back({ms, around_ms_});
    }

    const ProfileSession& session_;
    int nodes_;
    ControlPass& control_;
    DebugGate& gate_;
    const JobHooks& hooks_;
    std::map<std::tuple<CostPart, bool, double>, std::vector<ControlledTime>> samples_;
    Status status_;
    double before_ms_ = 0, around_ms_ = 0;  ///< of the control: before the next step; around this one
    double control_ms_ = 0;                 ///< around counted steps, summed
    int counted_ = 0;
    TimeNs total_ns_ = 0;
    double context_ = 0, active_rows_ = 0;
    int evals_ = 0;
};

/// Supplies a prompt of random tokens for each sequence.
class RandomPrompts final : public PromptFeed {
  public:
    RandomPrompts(const ProfileSession& session, int vocab, bool repeats)
        : session_(session), vocab_(vocab), repeats_(repeats) {}

    std::optional<PromptInput> next() override {
        if (begun_ == session_.batch) return std::nullopt;
        PromptInput prompt;
        prompt.id = std::to_string(begun_);
        Rng rng(prompt_seed, static_cast<std::uint64_t>(begun_++));
        for (int i = 0; i < session_.context; ++i) {
            const bool repeated = repeats_ && i >= ngram_period;
            prompt.tokens.push_back(repeated ? prompt.tokens[i - ngram_period]
                                             : static_cast<TokenId>(rng.below(vocab_)));
        }
        return prompt;
    }
    void done(const PromptInput&, PromptOutcome) override {}

  private:
    const ProfileSession& session_;
    std::uint32_t vocab_;
    bool repeats_;
    int begun_ = 0;
};

/// Returns the tokens to generate for `rounds` counted steps, if every draft is accepted.
int max_new(const ProfileSession& session) {
    const int steps = session.rounds + DecodeOptions().warmup_steps;
    return 1 + steps * (session.tree.levels() + 1);
}

}  // namespace

Result<ControlPass> ControlPass::make(Target& target, kernels::Backend& backend) {
    constexpr int tokens = 64;  // our default
    const int context = std::min(tokens, target.config().context - 1);
    ControlPass made(target, backend, target.make_cache(context + 1));
    std::vector<TokenId> prompt;
    Rng rng(prompt_seed);
    for (int i = 0; i < context; ++i)
        prompt.push_back(static_cast<TokenId>(rng.below(target.config().vocab)));
    DS_TRY(target.prefill(made.cache_, prompt, {}, made.out_));
    return made;
}

Result<double> ControlPass::run() {
    const TokenId token = 0;
    const SequenceTokens sequence{&cache_, {&token, 1}, {}, nullptr};
    const TimeNs start = monotonic_ns();
    DS_TRY(target_.forward({{&sequence, 1}, {}, {}, true}, out_));
    return milliseconds(monotonic_ns() - start);
}

int positions_needed(const ProfileSession& session) {
    return session.context + max_new(session) + session.tree.nodes;
}

Result<SessionTimes> time_session(const ProfileModels& models, const ProfileSession& session,
                                  const JobHooks& hooks) {
    const bool drafts = session.tree.nodes > 1;
    DecodeOptions options;
    options.tree = session.tree;
    options.batch = session.batch;
    options.max_new = max_new(session);
    options.ignore_eos = true;
    DebugGate gate;
    StepTimes sink(session, drafts, models.control, gate, hooks);
    RowIds ids;
    CaptureOutput output;
    output.sink = &sink;
    output.ids = &ids;
    output.run_id = ++ids.run;
    output.run_start = monotonic_ns();
    PhaseRecorder phases;
    DecodeSession decode(
        {models.target, models.drafter, models.head, nullptr, models.backend, phases, gate, options, output});
    const int vocab = std::min(models.target.tokenizer()->size(), models.target.lm_head().n());
    RandomPrompts prompts(session, vocab, models.head == nullptr && drafts);
    DS_TRY(decode.run(prompts));
    if (hooks.is_cancelled()) return Error{ErrorKind::cancelled, "stopped while measuring"};
    return sink.take();
}

}  // namespace draftscope

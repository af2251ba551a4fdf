#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "app/jobs/run/choose_tree.h"
#include "app/jobs/run/conversation_feed.h"
#include "app/jobs/run/model_cache.h"
#include "app/jobs/run/pool.h"
#include "app/jobs/run/run_file.h"
#include "app/jobs/run/run_job.h"
#include "app/jobs/run/run_plan.h"
#include "app/jobs/run/run_telemetry.h"
#include "base/clock.h"
#include "base/log.h"
#include "capture/run_setting.h"
#include "kernels/backend.h"
#include "storage/record_ids.h"

namespace draftscope {
namespace {

/// The consumers and controls of one call of EngineHost::run(), and what it has found out so far.
struct RunContext {
    Recorder& recorder;
    DebugGate& gate;
    const RunHooks& hooks;
    RunFile& file;
    RunReport report = {};
};

/// Numbers the steps of a run that continues an earlier one, whose steps come first.
class LaterSteps : public RecordSink {
  public:
    LaterSteps(RecordSink& next, int first) : next_(next), first_(first) {}
    void push(Record record) override {
        if (auto* step = std::get_if<StepRecord>(&record)) step->step.ordinal += first_;
        if (auto* live = std::get_if<LiveRound>(&record)) live->step.ordinal += first_;
        next_.push(std::move(record));
    }
    void wait_for_space() override { next_.wait_for_space(); }

  private:
    RecordSink& next_;
    int first_;
};

RunStarted start_record(const RunRow& row, const RunPlan& plan, const ModelCache& models) {
    return {row,
            models.vocabulary().vocab,
            {row.id, row.started_monotonic, utc_ns() - plan.kept.duration, std::nullopt}};
}

RunEnded end_record(const RunRow& row, bool ok, bool cancelled) {
    const RunEnd how = !ok ? RunEnd::error : cancelled ? RunEnd::cancelled : RunEnd::ok;
    const TimeNs now = monotonic_ns();
    return {row.id, how, now - row.started_monotonic, {row.id, now, utc_ns(), std::nullopt}};
}

CaptureOutput output_of(const RunRow& row, const Vocabulary& vocabulary, RowIds& ids, RecordSink& sink) {
    return {&sink,    &ids,
            row.id,   row.started_monotonic,
            row.head, vocabulary.ranks.empty() ? nullptr : &vocabulary.ranks};
}

/// Decodes the conversations of one run of the capture, some of them at a time: two runs can take turns. A
/// baseline uses no heads.
struct RunDecoder {
    RunDecoder(const RunRow& row, const RunPlan& plan, ModelCache& models, Drafter& drafter, RowIds& ids,
               RecordSink& out, int first_step, DebugGate& gate, const RunHooks& hooks,
               const std::string& activity)
        : steps(out, first_step),
          telemetry(row, ids, steps),
          feed(models.target(), plan.conversations, plan.feed_settings(), hooks, activity),
          session({models.target(), drafter, plan.baseline ? nullptr : models.head(),
                   plan.baseline ? nullptr : models.full_head(), models.backend(), telemetry.phases(), gate,
                   plan.decode_options(plan.baseline ? std::span<const ShadowHead>() : models.shadows()),
                   output_of(row, models.vocabulary(), ids, telemetry.sink())}) {
        telemetry.phases().set_enabled(hooks.phases);
    }
    /// Decodes the next conversations, at most `count`.
    Status decode(std::size_t count) {
        feed.allow(count);
        return session.run(feed);
    }

    LaterSteps steps;
    RunTelemetry telemetry;
    ConversationFeed feed;
    DecodeSession session;
};

// Our default: the longest baseline that no option requests.
constexpr double max_short_seconds = 3;

/// The baseline of a run, which takes turns with it. A capture has one run after the other, so its records
/// wait for the run's end.
class Baseline : public RecordSink {
  public:
    explicit Baseline(RunPlan& its_plan, const RunHooks& run_hooks) : plan(its_plan) {
        hooks.frontend = run_hooks.frontend;
        hooks.phases = run_hooks.phases;
        hooks.on_progress = run_hooks.on_progress;
        if (plan.only_if_short) own_gate.emplace();
    }
    void push(Record record) override {
        records.push_back(std::move(record));
        if (own_gate && seconds(monotonic_ns() - began) > max_short_seconds) own_gate->cancel();
    }
    /// Passes the records on. Their ids become those that follow `next`.
    void release(RowIds& next, RecordSink& out) {
        const RowIds base = next;
        for (Record& record : records) {
            storage::visit_ids(record,
                               [&](RowId& id, RowId RowIds::*kind) { id += id == 0 ? 0 : base.*kind; });
            out.push(std::move(record));
        }
        for (RowId RowIds::*kind :
             {&RowIds::run, &RowIds::prompt, &RowIds::step, &RowIds::round, &RowIds::span, &RowIds::gpu_op})
            next.*kind += ids.*kind;
    }
    bool ended() const { return plan.conversations.empty() || (decoder && decoder->feed.ended()); }

    RunPlan& plan;
    RunRow row;  ///< its id is 1 until the records are released
    RowIds ids;
    RunHooks hooks;
    std::vector<Record> records;
    std::optional<DebugGate> own_gate;  ///< ends a baseline that proves to be long
    TimeNs began = 0;
    std::unique_ptr<Drafter> drafter;
    std::optional<RunDecoder> decoder;  ///< set from the first turn to the last
    bool ok = true, cancelled = false;
};

/// Verifies a run with --numerics fast: decodes the first turns of `prompts` again with exact kernels. Absent
/// for exact runs and for texts that are not the target's own (other rules, simulated acceptance). The device
/// uses exact kernels afterwards.
Result<std::optional<ExactCheck>> check_fast_run(const ResolvedRun& run, Target& target,
                                                 kernels::Backend& backend, const ChatTemplate& chat,
                                                 const std::vector<Conversation>& conversations,
                                                 const std::vector<PromptReport>& prompts) {
    if (run.library_rows == 0 || backend.is_host()) return std::optional<ExactCheck>();
    DS_TRY(backend.use_cublaslt(0));
    if (run.rule()->info().losslessness != Losslessness::exact) return std::optional<ExactCheck>();
    std::map<int, const PromptOutcome*> outcomes;
    for (const PromptReport& prompt : prompts) outcomes[prompt.ordinal] = &prompt.outcome;
    const Sampling sampling{run.config.temperature, run.config.top_p, run.config.top_k, run.config.seed};
    ExactCheck check;
    for (const Conversation& conversation : conversations) {
        const auto found = outcomes.find(conversation.first_ordinal);
        const auto sequence = static_cast<std::uint64_t>(conversation.first_ordinal);
        if (found == outcomes.end()) continue;
        DS_ASSIGN(const auto prompt, ConversationFeed::first_turn(target, conversation, chat));
        DS_TRY(check_exact(target, backend, sampling, sequence, prompt, found->second->tokens, check));
    }
    return std::optional<ExactCheck>(check);
}

}  // namespace

struct EngineHost::Impl {
    RowIds ids;
    ModelCache models;
    bool traced = false;  ///< the loaded models' graphs were captured with CUPTI active

    Status load(RunPlan& plan, RunContext& context);
    TierChoice open_run_tier(const ResolvedRun& run);
    Status take_earlier(const EarlierRuns& earlier, RunPlan& plan, std::optional<RunPlan>& baseline,
                        const RunContext& context);
    int push_kept(const RunRow& row, RunPlan& plan, RunContext& context);
    Status decode_baseline(Baseline& baseline, std::size_t count, RunContext& context);
    void push_baseline(Baseline& baseline, RunContext& context);
    Status take_turns(RunDecoder& own, Baseline* baseline, RunContext& context);
    Status record_run(RunPlan& plan, std::optional<RunPlan>& baseline, RunContext& context);
};

EngineHost::EngineHost() : impl_(std::make_unique<Impl>()) {}

EngineHost::~EngineHost() = default;

RowIds& EngineHost::ids() {
    return impl_->ids;
}

/// Call before models are loaded: CUPTI must observe the capture of graphs to attribute their kernels. Models
/// loaded by an untraced run are reloaded.
TierChoice EngineHost::Impl::open_run_tier(const ResolvedRun& run) {
    TierChoice choice = open_tier(run.tier, run.gpu, gpu_session());
    if (!choice.why.empty()) log_warning("{}", choice.why);
    if (choice.used == Tier::t0 || traced) return choice;
    models.clear();
    traced = true;
    return choice;
}

/// Loads the models, drops prompts that they cannot take and starts what the tier needs.
Status EngineHost::Impl::load(RunPlan& plan, RunContext& context) {
    const ResolvedRun& run = plan.run;
    RunReport& report = context.report;
    report.tier = open_run_tier(run);
    if (run.tier != Tier::t0) report.cupti = run.gpu ? gpu_session().state() : make_cupti_api()->probe();
    const bool is_traced = report.tier.used != Tier::t0;
    if (is_traced)
        add_note(plan.notes,
                 "{}: no kernel starts before the previous one ends, so rounds take longer than at T0",
                 to_text(report.tier.used));
    models.set_traced(is_traced);
    DS_TRY(models.load(run, context.hooks));
    DS_ASSIGN(plan.chat, choose_chat(models.target(), run.config, plan.conversations, plan.notes));
    DS_ASSIGN(plan.skipped, ConversationFeed::drop_unusable(models.target(), plan.chat, plan.conversations,
                                                            plan.windowed && !run.auto_tree, plan.notes));
    report.planned_prompts = plan.prompts();
    return {};
}

/// Takes over what an earlier run completed, before the file of that run is replaced.
Status EngineHost::Impl::take_earlier(const EarlierRuns& earlier, RunPlan& plan,
                                      std::optional<RunPlan>& baseline, const RunContext& context) {
    const auto take = [&](RunPlan& one) {
        return earlier.take(describe_run(one, models, context.report.tier, context.hooks.frontend, 0), one);
    };
    if (baseline && baseline->only_if_short)
        for (const RunRecords& run : earlier.runs())
            if (is_baseline(run.started.run)) {
                plan.run.config.baseline = describe_part(run.started.run).conversations;
                baseline = plan.make_baseline();
            }
    if (baseline) DS_TRY(take(*baseline));
    return take(plan);
}

/// Passes the kept conversations on as the beginning of the run. Returns the number of their steps.
int EngineHost::Impl::push_kept(const RunRow& row, RunPlan& plan, RunContext& context) {
    int steps = 0;
    for (const RunRecords& part : plan.kept.parts)
        steps += static_cast<int>(std::count_if(part.steps.begin(), part.steps.end(), [](const Record& one) {
            return std::holds_alternative<StepRecord>(one);
        }));
    push_joined(std::exchange(plan.kept.parts, {}), row.id, ids, context.recorder);
    return steps;
}

/// Decodes the next conversations of the baseline, which no pause holds. Drops one that proves to be long.
Status EngineHost::Impl::decode_baseline(Baseline& baseline, std::size_t count, RunContext& context) {
    baseline.cancelled = context.gate.cancelled();
    if (!baseline.decoder && baseline.cancelled) return {};
    DebugGate& gate = baseline.own_gate ? *baseline.own_gate : context.gate;
    gate.set_enabled(false);
    if (!baseline.decoder) {
        DS_ASSIGN(baseline.drafter,
                  make_drafter(std::string(plain_drafter), "", models.target(), models.backend()));
        baseline.began = monotonic_ns();
        baseline.decoder.emplace(baseline.row, baseline.plan, models, *baseline.drafter, baseline.ids,
                                 baseline, 0, gate, baseline.hooks, "autoregressive baseline: prompt");
    }
    baseline.hooks.report(-1, "autoregressive baseline");
    const Status decoded = baseline.decoder->decode(count);
    baseline.ok = decoded.ok();
    baseline.cancelled = context.gate.cancelled();
    context.gate.set_enabled(true);
    if (!baseline.own_gate || !gate.cancelled()) return decoded;
    baseline.decoder.reset();
    baseline.plan.conversations.clear();
    return decoded;
}

/// Passes on what was kept and decoded of the baseline, as a run.
void EngineHost::Impl::push_baseline(Baseline& baseline, RunContext& context) {
    if (!baseline.decoder && baseline.plan.kept.parts.empty()) return;
    if (baseline.decoder) baseline.decoder->telemetry.finish();
    baseline.decoder.reset();
    baseline.row.id += ids.run;
    context.recorder.push(start_record(baseline.row, baseline.plan, models));
    LaterSteps steps(context.recorder, push_kept(baseline.row, baseline.plan, context));
    baseline.release(ids, steps);
    context.recorder.push(end_record(baseline.row, baseline.ok, baseline.cancelled));
    context.recorder.flush();
}

/// Decodes the run's conversations, in turns with those of the baseline. The one that is first in a turn is
/// second in the next, so that a drift of the machine's speed affects both.
Status EngineHost::Impl::take_turns(RunDecoder& own, Baseline* baseline, RunContext& context) {
    constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
    context.gate.set_enabled(true);
    if (baseline == nullptr) return own.decode(all);
    // A batch shrinks at the end of a turn, so it has few of them.
    const auto batch = static_cast<std::size_t>(baseline->plan.run.config.batch);
    const std::size_t turn = batch == 1 ? 1 : std::max(batch, (baseline->plan.conversations.size() + 1) / 2);
    for (bool own_first = true; !own.feed.ended() && !baseline->ended() && !context.gate.cancelled();
         own_first = !own_first)
        for (const bool is_own : {own_first, !own_first}) {
            if (baseline->own_gate && own.feed.prefill_seconds() > max_short_seconds) return own.decode(all);
            DS_TRY(is_own ? own.decode(turn) : decode_baseline(*baseline, turn, context));
        }
    // A continued run may have less to decode than its baseline.
    if (!baseline->ended()) DS_TRY(decode_baseline(*baseline, all, context));
    return own.decode(all);
}

/// Notes the rounds whose text is longer than the drafter was trained for.
void note_long_rounds(Recorder& recorder, RowId run, int trained, Notes& notes) {
    if (trained == 0) return;
    recorder.flush();
    const auto snapshot = recorder.snapshot();
    std::int64_t rounds = 0, beyond = 0;
    for (std::size_t i = 0; i < snapshot->rounds.size(); ++i) {
        const RoundRow& row = snapshot->rounds[i].row;
        if (row.run_id != run) continue;
        ++rounds;
        beyond += row.context_length > trained ? 1 : 0;
    }
    if (beyond > 0)
        add_note(notes, "{} of {} rounds drafted beyond the context of {} positions that the drafter names",
                 beyond, rounds, trained);
}

/// Decodes the run itself with its baseline and completes its report.
Status EngineHost::Impl::record_run(RunPlan& plan, std::optional<RunPlan>& baseline_plan,
                                    RunContext& context) {
    RunReport& report = context.report;
    std::optional<Baseline> baseline;
    if (baseline_plan) {
        baseline.emplace(*baseline_plan, context.hooks);
        baseline->row =
            describe_run(*baseline_plan, models, report.tier, report.frontend, ++baseline->ids.run);
    }
    // Two runs can't share what a higher tier records: the baseline comes first.
    const bool first = baseline && report.tier.used != Tier::t0;
    if (first) {
        const Status decoded = decode_baseline(*baseline, baseline_plan->conversations.size(), context);
        push_baseline(*baseline, context);
        DS_TRY(decoded);
    }
    const RunRow row = describe_run(plan, models, report.tier, report.frontend, ++ids.run);
    report.run_id = row.id;
    append_notes(report.notes, models.notes());
    append_notes(report.notes, plan.notes);
    append_notes(report.notes, context.file.notes());
    if (models.drafter().properties().order_matters && plan.prompts() > 1)
        add_note(report.notes,
                 "--drafter {}: drafts from the texts before, so the order of the {} prompts matters",
                 plan.run.config.drafter, plan.prompts());
    say_notes(report.notes);
    context.recorder.push(start_record(row, plan, models));
    const int kept_steps = push_kept(row, plan, context);
    if (!plan.conversations.empty()) {
        context.file.release_earlier();
        if (context.hooks.on_decoding) context.hooks.on_decoding();
    }
    Status outcome;
    {
        RunDecoder own(row, plan, models, models.drafter(), ids, context.recorder, kept_steps, context.gate,
                       context.hooks, "prompt");
        outcome = take_turns(own, first || !baseline ? nullptr : &*baseline, context);
        own.telemetry.finish();
        report.prompts = own.feed.take_reports();
        append_notes(report.notes, own.feed.notes());
    }
    report.prompts.insert(report.prompts.end(), plan.kept.reports.begin(), plan.kept.reports.end());
    std::ranges::sort(report.prompts, {}, &PromptReport::ordinal);
    report.pinned_workers = models.backend().pool().pinned();
    if (!models.backend().is_host()) report.gpu = models.backend().stats();
    report.cancelled = context.gate.cancelled();
    if (outcome.ok() && !report.cancelled) {
        DS_ASSIGN(report.exact, check_fast_run(plan.run, models.target(), models.backend(), plan.chat,
                                               plan.conversations, report.prompts));
    }
    note_long_rounds(context.recorder, row.id, models.drafter().properties().trained_positions, report.notes);
    say_notes(report.notes);
    for (const std::string& note : report.notes)
        context.recorder.push(NoteRow{row.id, 0, monotonic_ns(), note});
    context.recorder.push(end_record(row, outcome.ok(), report.cancelled));
    context.recorder.flush();
    if (baseline) push_baseline(*baseline, context);
    return outcome;
}

Result<RunReport> EngineHost::run(const RunConfig& requested, Recorder& recorder, DebugGate& gate,
                                  const RunHooks& hooks) {
    RunConfig config = requested;
    EarlierRuns read;
    if (const std::string path = config.resume ? EarlierRuns::find(config.save) : ""; !path.empty()) {
        DS_ASSIGN(read, EarlierRuns::read(path));
        if (config.tree == "auto" || config.tree == quick_tree) read.keep_choice(config);
    }
    const EarlierRuns& earlier = hooks.earlier != nullptr ? *hooks.earlier : read;
    DS_ASSIGN(RunPlan plan, make_run_plan(config, hooks));
    RunFile file(plan.run.config, recorder);
    DS_TRY(file.prepare());
    RunContext context{recorder, gate, hooks, file};
    context.report.frontend = hooks.frontend;
    context.report.demo_model = plan.run.demo_model;
    DS_TRY(impl_->load(plan, context));
    if (hooks.on_started) hooks.on_started();

    gate.set_enabled(false);  // preparation is never held
    if (plan.run.auto_tree) {
        DS_TRY(choose_tree(plan, impl_->models, gate, hooks, context.report));
        if (hooks.only_choose) return std::move(context.report);
    }
    DS_TRY(warn_of_overlap(plan));
    std::optional<RunPlan> baseline = plan.make_baseline();
    DS_TRY(impl_->take_earlier(earlier, plan, baseline, context));
    context.report.resumed_conversations = plan.kept.conversations;
    DS_TRY(file.start());
    const Status recorded = impl_->record_run(plan, baseline, context);
    if (recorded.ok()) file.release_earlier();
    file.close(context.report);
    if (recorded.ok()) return std::move(context.report);
    Error error = recorded.error();
    if (!context.report.capture.empty())
        error.message += fmt::format("; {} has what was recorded before", context.report.capture);
    return error;
}

}  // namespace draftscope

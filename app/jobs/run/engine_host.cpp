#include <algorithm>

#include "app/jobs/run/choose_tree.h"
#include "app/jobs/run/conversation_feed.h"
#include "app/jobs/run/earlier_runs.h"
#include "app/jobs/run/gpu_row_sinks.h"
#include "app/jobs/run/model_cache.h"
#include "app/jobs/run/numerics.h"
#include "app/jobs/run/run_description.h"
#include "app/jobs/run/run_file.h"
#include "app/jobs/run/run_job.h"
#include "app/jobs/run/run_plan.h"
#include "app/jobs/run/run_telemetry.h"
#include "base/clock.h"
#include "base/log.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "kernels/backend.h"

namespace draftscope {
namespace {

/// The consumers and controls of one call of EngineHost::run(), and what it has found out so far.
struct RunContext {
    Recorder& recorder;
    DebugGate& gate;
    const RunHooks& hooks;
    RunFile& file;
    RunReport report = {};
    std::unique_ptr<CounterSession> counters = {};  ///< set at tier T3
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

/// Ends the run in every consumer, also after an error.
void end_run(RunContext& context, const RunRow& row, bool ok) {
    const RunEnd how = !ok ? RunEnd::error : context.gate.cancelled() ? RunEnd::cancelled : RunEnd::ok;
    const TimeNs now = monotonic_ns();
    context.recorder.push(
        RunEnded{row.id, how, now - row.started_monotonic, {row.id, now, utc_ns(), std::nullopt}});
    context.recorder.flush();
}

}  // namespace

struct EngineHost::Impl {
    RowIds ids;
    ModelCache models;
    bool traced = false;  ///< the loaded models' graphs were captured with CUPTI active

    Status load(const RunPlan& plan, RunContext& context);
    TierChoice open_run_tier(const ResolvedRun& run);
    Status take_earlier(RunPlan& plan, std::optional<RunPlan>& baseline, const RunContext& context);
    int push_kept(const RunRow& row, RunPlan& plan, RunContext& context);
    Result<std::vector<PromptReport>> record(const RunRow& row, RunPlan& plan, Drafter& drafter,
                                             const std::string& activity, const RunHooks& hooks,
                                             RunContext& context);
    Status record_baseline(RunPlan& plan, RunContext& context);
    Status record_run(RunPlan& plan, RunContext& context);
};

EngineHost::EngineHost() : impl_(std::make_unique<Impl>()) {}

EngineHost::~EngineHost() = default;

RowIds& EngineHost::ids() {
    return impl_->ids;
}

/// Call before models are loaded: CUPTI must observe the capture of graphs to attribute their kernels. Models
/// loaded by an untraced run are reloaded.
TierChoice EngineHost::Impl::open_run_tier(const ResolvedRun& run) {
    TierChoice choice = open_tier(run.tier, run.gpu, gpu_session(), probe_counters());
    if (!choice.why.empty()) log_warning("{}", choice.why);
    if (choice.used == Tier::t0 || choice.used == Tier::t3 || traced) return choice;
    models.clear();
    traced = true;
    return choice;
}

/// Loads the models, checks the prompts against them and starts what the tier needs.
Status EngineHost::Impl::load(const RunPlan& plan, RunContext& context) {
    const ResolvedRun& run = plan.run;
    RunReport& report = context.report;
    report.tier = open_run_tier(run);
    if (run.tier != Tier::t0) report.cupti = run.gpu ? gpu_session().state() : make_cupti_api()->probe();
    DS_TRY(models.load(run, context.hooks));
    DS_TRY(ConversationFeed::check(models.target(), plan.conversations, run.config.raw));
    if (report.tier.used != Tier::t3) return {};
    // The device has its context here; a refusal must be known before the run's tier is recorded.
    context.counters = begin_counters(make_counter_api(), report.tier);
    if (!context.counters) log_warning("{}", report.tier.why);
    return {};
}

/// Takes over what an earlier run completed, before the file of that run is replaced.
Status EngineHost::Impl::take_earlier(RunPlan& plan, std::optional<RunPlan>& baseline,
                                      const RunContext& context) {
    const EarlierRuns* earlier = context.hooks.earlier;
    EarlierRuns read;
    if (const std::string path = EarlierRuns::find(plan.run.config.save);
        plan.run.config.resume && !path.empty()) {
        DS_ASSIGN(read, EarlierRuns::read(path));
        earlier = &read;
    }
    if (earlier == nullptr) return {};
    const auto take = [&](RunPlan& one) {
        return earlier->take(describe_run(one, models, context.report.tier, context.hooks.frontend, 0), one);
    };
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
    if (plan.conversations.empty()) return steps;
    context.file.release_earlier();
    if (context.hooks.on_decoding) context.hooks.on_decoding();
    return steps;
}

/// Decodes the conversations of `plan` as a run of the capture, with the loaded heads if `drafter` uses one.
Result<std::vector<PromptReport>> EngineHost::Impl::record(const RunRow& row, RunPlan& plan, Drafter& drafter,
                                                           const std::string& activity, const RunHooks& hooks,
                                                           RunContext& context) {
    const Vocabulary& vocabulary = models.vocabulary();
    context.recorder.push(RunStarted{
        row, vocabulary.vocab, {row.id, row.started_monotonic, utc_ns() - plan.kept.duration, std::nullopt}});
    LaterSteps steps(context.recorder, push_kept(row, plan, context));
    RunTelemetry telemetry(row, ids, steps, context.counters.get());
    telemetry.phases().set_enabled(hooks.phases);
    telemetry.phases().set_observer(&context.gate);
    CaptureOutput output;
    output.sink = &telemetry.sink();
    output.ids = &ids;
    output.run_id = row.id;
    output.run_start = row.started_monotonic;
    output.head_text = row.head;
    output.ranks = vocabulary.ranks.empty() ? nullptr : &vocabulary.ranks;
    const bool heads = !plan.baseline;
    const auto shadows = heads ? models.shadows() : std::span<const ShadowHead>();
    DecodeSession session(models.target(), drafter, heads ? models.head() : nullptr,
                          heads ? models.full_head() : nullptr, models.exec(), plan.decode_options(shadows),
                          output, telemetry.phases(), context.gate);
    ConversationFeed feed(models.target(), plan.conversations, plan.feed_settings(), hooks, activity);
    const Status decoded = session.run(feed);
    telemetry.finish();
    if (!decoded.ok()) return decoded.error();
    std::vector<PromptReport> reports = feed.take_reports();
    reports.insert(reports.end(), plan.kept.reports.begin(), plan.kept.reports.end());
    std::sort(reports.begin(), reports.end(),
              [](const PromptReport& a, const PromptReport& b) { return a.ordinal < b.ordinal; });
    return reports;
}

/// Decodes the conversations of a baseline without a drafter, as a separate run of the capture.
Status EngineHost::Impl::record_baseline(RunPlan& baseline, RunContext& context) {
    DS_ASSIGN(const auto drafter,
              make_drafter(std::string(plain_drafter), "", models.target(), models.exec()));
    const RunHooks& hooks = context.hooks;
    RunHooks quiet;
    quiet.frontend = hooks.frontend;
    quiet.phases = hooks.phases;
    quiet.on_progress = hooks.on_progress;
    if (hooks.on_progress) hooks.on_progress(0, "autoregressive baseline");
    const RunRow row = describe_run(baseline, models, context.report.tier, hooks.frontend, ++ids.run);
    const auto decoded = record(row, baseline, *drafter, "autoregressive baseline: prompt", quiet, context);
    end_run(context, row, decoded.ok());
    return decoded.ok() ? Status() : decoded.error();
}

/// Decodes the run itself and completes its report.
Status EngineHost::Impl::record_run(RunPlan& plan, RunContext& context) {
    RunReport& report = context.report;
    const RunRow row = describe_run(plan, models, report.tier, report.frontend, ++ids.run);
    report.run_id = row.id;
    auto decoded = record(row, plan, models.drafter(), "prompt", context.hooks, context);
    report.pinned_workers = models.exec().pinned();
    if (const kernels::Backend* device = models.exec().device()) report.gpu = device->stats();
    report.cancelled = context.gate.cancelled();
    Status outcome = decoded.ok() ? Status() : decoded.error();
    if (decoded.ok()) report.prompts = std::move(*decoded);
    if (outcome.ok() && !report.cancelled) {
        DS_ASSIGN(report.exact, check_fast_run(plan.run, models.target(), models.exec(), plan.conversations,
                                               report.prompts));
    }
    end_run(context, row, outcome.ok());
    return outcome;
}

Result<RunReport> EngineHost::run(const RunConfig& config, Recorder& recorder, DebugGate& gate,
                                  const RunHooks& hooks) {
    DS_ASSIGN(RunPlan plan, make_run_plan(config, hooks));
    RunFile file(plan.run.config, recorder);
    DS_TRY(file.prepare());
    RunContext context{recorder, gate, hooks, file};
    context.report.planned_prompts = plan.prompts();
    context.report.frontend = hooks.frontend;
    DS_TRY(impl_->load(plan, context));
    if (hooks.on_started) hooks.on_started();

    gate.set_enabled(false);  // preparation is never held
    if (plan.run.auto_tree) {
        DS_TRY(choose_tree(plan, impl_->models, gate, hooks, context.report));
        if (hooks.on_chosen) hooks.on_chosen(plan.chosen_config());
    }
    DS_TRY(warn_of_overlap(plan));
    std::optional<RunPlan> baseline;
    if (plan.wants_baseline()) baseline = plan.make_baseline();
    DS_TRY(impl_->take_earlier(plan, baseline, context));
    context.report.resumed_conversations = plan.kept.conversations;
    DS_TRY(file.start());
    if (baseline) DS_TRY(impl_->record_baseline(*baseline, context));
    gate.set_enabled(true);

    const Status recorded = impl_->record_run(plan, context);
    if (recorded.ok()) file.release_earlier();
    file.close(context.report);
    if (!recorded.ok()) return recorded.error();
    return std::move(context.report);
}

}  // namespace draftscope

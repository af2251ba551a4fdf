#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

#include "app/jobs/machine/capabilities.h"
#include "app/jobs/machine/probe_cache.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/packed_cache_dir.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/resolve/vocabulary.h"
#include "app/jobs/run/conversation_feed.h"
#include "app/jobs/run/gpu_row_sinks.h"
#include "app/jobs/run/numerics.h"
#include "app/jobs/run/nvtx_row_sink.h"
#include "app/jobs/run/prompt_file.h"
#include "app/jobs/run/run_description.h"
#include "app/jobs/run/run_job.h"
#include "app/jobs/run/tree_autotuner.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/log.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/registry.h"
#include "engine/formats/synthetic_model.h"
#include "engine/heads/artefact.h"
#include "engine/transformer/target.h"
#include "kernels/device.h"
#include "profiler/nvtx/nvtx_mirror.h"
#include "storage/capture_file.h"

namespace draftscope {
namespace {

std::vector<Conversation> single_prompt(const std::string& text) {
    return {Conversation{"0", "", {text}}};
}

}  // namespace

struct EngineHost::Impl {
    RowIds ids;
    RowId vocab_ids = 0;
    std::unique_ptr<kernels::Exec> exec;
    std::string backend;  ///< of exec
    bool gpu_graphs = true, l2_window = false;
    bool pin = false;  ///< requested when exec was made
    std::unique_ptr<Target> target;
    std::string target_key;
    Vocabulary vocabulary;
    std::string vocabulary_key;
    std::unique_ptr<Drafter> drafter;
    std::string drafter_key;
    std::unique_ptr<LmHead> head;
    std::unique_ptr<LmHead> full_head;
    std::vector<std::unique_ptr<LmHead>> shadow_heads;
    std::vector<ShadowHead> shadows;  ///< of the current run
    std::string head_key;
    Machine machine;
    bool traced = false;  ///< the loaded models' graphs were captured with CUPTI active

    TierChoice open_run_tier(const ResolvedRun& run);
    Status load(const ResolvedRun& run, const RunHooks& hooks);
    Status load_all(const ResolvedRun& run, const RunHooks& hooks);
    bool drop_broken_device();
    Status load_exec(const ResolvedRun& run, const RunHooks& hooks);
    void drop_target();
    Status load_target(const ResolvedRun& run, const RunHooks& hooks);
    Status load_drafter(const ResolvedRun& run, const RunHooks& hooks);
    Status load_heads(const ResolvedRun& run);
    Status load_shadows(const ResolvedRun& run);
    HeadWeights head_weights(const ResolvedRun& run) const;
    RunRow describe_run(const ResolvedRun& run, const std::string& frontend, const TierChoice& tier,
                        bool baseline = false);
    DecodeOptions decode_options(const ResolvedRun& run) const;
    Status choose_tree(ResolvedRun& run, const std::vector<Conversation>& conversations, DebugGate& gate,
                       const RunHooks& hooks, RunReport& report);
    Status record_baseline(const ResolvedRun& run, const std::vector<Conversation>& conversations,
                           Recorder& recorder, DebugGate& gate, const RunHooks& hooks, RunReport& report,
                           CounterSession* counters);
    struct RunToDecode;
    Result<std::vector<PromptReport>> record(const RunToDecode& what,
                                             const std::vector<Conversation>& conversations,
                                             Recorder& recorder, DebugGate& gate, const RunHooks& hooks,
                                             CounterSession* counters);
};

EngineHost::EngineHost() : impl_(std::make_unique<Impl>()) {
    impl_->machine = describe_capabilities();
}

EngineHost::~EngineHost() = default;

void EngineHost::reset_ids() {
    impl_->ids = {};
}

void EngineHost::Impl::drop_target() {
    shadows.clear();
    shadow_heads.clear();
    head.reset();
    full_head.reset();
    drafter.reset();
    target.reset();
    target_key.clear();
}

/// Call before models are loaded: CUPTI must observe the capture of graphs to attribute their kernels. Models
/// loaded by an untraced run are reloaded.
TierChoice EngineHost::Impl::open_run_tier(const ResolvedRun& run) {
    TierChoice choice = open_tier(run.tier, run.gpu, gpu_session(), probe_counters());
    if (!choice.why.empty()) log_warning("{}", choice.why);
    if (choice.used == Tier::t0 || choice.used == Tier::t3 || traced) return choice;
    drop_target();
    exec.reset();
    traced = true;
    return choice;
}

/// Creates the back end. Models on a device are released before the device.
Status EngineHost::Impl::load_exec(const ResolvedRun& run, const RunHooks& hooks) {
    const int cores = usable_cores();
    const int usual = hooks.frontend == "gui" ? std::max(1, cores - 1) : cores;
    const int threads = run.config.threads > 0 ? run.config.threads : usual;
    const bool same_device =
        backend == run.config.backend &&
        (backend != "cuda" || (gpu_graphs == run.config.gpu_graphs && l2_window == run.config.l2_window));
    if (exec && exec->threads() == threads && pin == run.config.pin && same_device) return {};
    pin = run.config.pin;
    if (backend == "cuda" || run.config.backend == "cuda") drop_target();
    if (run.config.backend == "cpu") {
        exec = kernels::make_cpu_exec(threads, kernels::best_isa(), pin);
        const int workers = threads - 1, pinned = exec->pinned();
        // Reports the pinning of this run next to the machine's capability.
        const auto known = std::find_if(machine.capabilities.begin(), machine.capabilities.end(),
                                        [](const Capability& one) { return one.name == "thread pinning"; });
        Capability pinning = *known;
        pinning.brief = pinned > 0 ? "on" : "off";
        pinning.state = fmt::format("{} of {} workers pinned to one CPU each", pinned, workers);
        if (pinning.available)
            pinning.remedy =
                pin && pinned < workers
                    ? fmt::format("--threads at most {}, the CPUs that this process may use", cores)
                    : "";
        std::erase_if(machine.capabilities, [&](const Capability& one) { return one.name == pinning.name; });
        machine.capabilities.push_back(std::move(pinning));
    } else {
        exec.reset();
        kernels::CudaOptions options;
        options.graphs = gpu_graphs = run.config.gpu_graphs;
        options.cache_windows = l2_window = run.config.l2_window;
        DS_ASSIGN(auto device, kernels::open_cuda(options));
        const kernels::DeviceInfo& info = device->info();
        Capability gpu;
        gpu.name = "GPU";
        gpu.available = true;
        gpu.state = fmt::format("{}, {}", info.name, info.architecture);
        std::erase_if(machine.capabilities, [&](const Capability& one) { return one.name == gpu.name; });
        machine.capabilities.push_back(std::move(gpu));
        exec = kernels::make_device_exec(threads, std::move(device));
    }
    backend = run.config.backend;
    return {};
}

Status EngineHost::Impl::load_target(const ResolvedRun& run, const RunHooks& hooks) {
    DS_TRY(load_exec(run, hooks));
    if (kernels::Device* device = exec->device()) DS_TRY(device->use_cublaslt(run.library_rows));
    const std::string key = run.config.model + "\n" + run.config.precision + "\n" + backend;
    if (!target || key != target_key) {
        drop_target();
        const auto progress = [&](double fraction, const std::string& what) {
            if (hooks.on_progress) hooks.on_progress(fraction, what);
        };
        DS_ASSIGN(const WeightCacheOptions cache, weight_cache_options());
        DS_ASSIGN(target, Target::load(run.config.model, *exec, run.precision, progress, cache));
        if (target->tokenizer() == nullptr)
            return bad_input("--model {}: has no tokenizer", run.config.model);
        target_key = key;
    }
    const int context = target->config().context;
    if (run.tree.nodes > context) {
        return bad_input("--tree {}: {} nodes do not fit the context of {} tokens of {}; use fewer nodes",
                         to_text(run.tree), run.tree.nodes, context, run.config.model);
    }
    const std::string wanted = key + "\n" + run.ranking_path;
    if (!vocabulary.vocab || wanted != vocabulary_key) {
        DS_ASSIGN(vocabulary, make_vocabulary(*target->tokenizer(), run.ranking_path, ++vocab_ids));
        vocabulary_key = wanted;
    }
    return {};
}

Status EngineHost::Impl::load_drafter(const ResolvedRun& run, const RunHooks& hooks) {
    const std::string key = target_key + "\n" + run.config.drafter + "\n" + run.drafter_path;
    if (drafter && key == drafter_key) return {};
    if (hooks.on_progress) hooks.on_progress(-1, "loading drafter " + run.drafter_id);
    head.reset();
    full_head.reset();
    drafter.reset();
    const std::string spec =
        run.drafter_path.empty() ? run.drafter_id : run.drafter_id + ":" + run.drafter_path;
    DS_ASSIGN(drafter, make_drafter(spec, run.drafter_path, *target, *exec));
    drafter_key = key;
    return {};
}

HeadWeights EngineHost::Impl::head_weights(const ResolvedRun& run) const {
    HeadWeights weights;
    weights.lm_head = drafter->own_lm_head() != nullptr ? drafter->own_lm_head() : &target->lm_head();
    weights.always_active = target->tokenizer()->eos();
    weights.row_ids = drafter->own_lm_head_ids();
    weights.vocab = std::min(target->tokenizer()->size(), target->lm_head().n());
    weights.hidden = weights.lm_head->k();
    weights.drafter_bytes = static_cast<double>(drafter->weight_bytes());
    weights.target = target->config().name;
    weights.tokenizer = target->tokenizer()->fingerprint();
    weights.drafter = run.drafter_id;
    // Without a checkpoint hash, weights of any drafter of this type are accepted.
    if (const auto hash = checkpoint_hash(parse_drafter_path(run.drafter_path)); hash.ok())
        weights.drafter_hash = *hash;
    return weights;
}

/// Prepares the shadow heads for each run; only shared weights are kept.
Status EngineHost::Impl::load_shadows(const ResolvedRun& run) {
    shadows.clear();
    shadow_heads.clear();
    DS_ASSIGN(const std::vector<ResolvedShadow> resolved, resolve_shadows(run));
    if (!resolved.empty() && !drafter->uses_head())
        return bad_input("--shadow {}: drafter {} has no LM head that another head could replace",
                         run.config.shadow, run.drafter_id);
    for (const ResolvedShadow& shadow : resolved) {
        const HeadSpec& spec = *shadow.run.head;
        DS_ASSIGN(auto made, make_head(spec, shadow.run.artefacts));
        DS_TRY(made->prepare(*exec, head_weights(shadow.run)));
        if (made->verify_whole_tree())
            return bad_input(
                "--shadow {}: needs the target's logits for every node of its trees; run it separately with "
                "--head",
                to_text(spec));
        shadows.push_back({to_text(spec), made.get(), shadow.aligned});
        shadow_heads.push_back(std::move(made));
    }
    return {};
}

Status EngineHost::Impl::load_heads(const ResolvedRun& run) {
    if (!drafter->uses_head()) {
        const bool has_own = find_drafter(run.drafter_id)->uses_head;
        if (has_own && run.head && !is_full_head(run.head->id)) {
            return bad_input("--head {}: drafter {} has its own LM head for each level; use --head full",
                             to_text(*run.head), run.drafter_id);
        }
        head.reset();
        full_head.reset();
        return {};
    }
    const HeadFiles& files = run.artefacts;
    const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}", drafter_key, to_text(*run.head),
                                        files.ranking_path, files.artefact_path, files.affinity_path);
    if (head && key == head_key) return {};
    const HeadWeights weights = head_weights(run);
    full_head.reset();
    head_key.clear();  // stays empty if prepare() fails
    DS_ASSIGN(head, make_head(*run.head, run.artefacts));
    DS_TRY(head->prepare(*exec, weights));
    if (!is_full_head(run.head->id)) {
        DS_ASSIGN(full_head, make_head(HeadSpec{std::string(full_head_id), {}}, {}));
        DS_TRY(full_head->prepare(*exec, weights));
    }
    head_key = key;
    return {};
}

/// Drops a device that has failed, or that had no memory for data outliving a session: it would reject all
/// further work, and its contents are lost. Clears an out-of-memory error that affected only an earlier run.
bool EngineHost::Impl::drop_broken_device() {
    kernels::Device* device = exec ? exec->device() : nullptr;
    if (device == nullptr) return false;
    {
        const std::lock_guard lock(device->submit_mutex());
        device->clear_out_of_memory();
        if (device->synchronize().ok()) return false;
    }
    drop_target();
    exec.reset();
    return true;
}

Status EngineHost::Impl::load(const ResolvedRun& run, const RunHooks& hooks) {
    if (drop_broken_device()) log_warning("the GPU failed in the previous run; it is reopened");
    const Status loaded = load_all(run, hooks);
    if (loaded.ok() || !drop_broken_device()) return loaded;
    return Error{loaded.error().kind,
                 fmt::format("{}; the next run reopens the GPU: choose a smaller model, or --backend cpu",
                             loaded.error().message)};
}

Status EngineHost::Impl::load_all(const ResolvedRun& run, const RunHooks& hooks) {
    DS_TRY(load_target(run, hooks));
    if (const std::string& problem = target->chat().problem(); !run.config.raw && !problem.empty()) {
        return bad_input("{}", problem);
    }
    DS_TRY(load_drafter(run, hooks));
    DS_TRY(check_tree(*drafter, run.tree));
    DS_TRY(load_heads(run));
    return load_shadows(run);
}

RunRow EngineHost::Impl::describe_run(const ResolvedRun& run, const std::string& frontend,
                                      const TierChoice& tier, bool baseline) {
    RunRow row;
    row.id = ++ids.run;
    row.started_monotonic = monotonic_ns();
    row.started_utc = utc_text(utc_ns()).text;
    row.frontend = frontend;
    row.target = target->config().name;
    row.synthetic = is_synthetic_model(run.config.model);
    row.drafter = run.drafter_id;
    const bool drafts = find_drafter(run.drafter_id)->drafts;
    row.head = head && drafts ? to_text(*run.head) : std::string();
    row.tree = drafts ? to_text(run.tree) : std::string("none");
    row.name = row.head.empty() ? row.drafter : row.drafter + " x " + row.head;
    row.verify = to_text(run.verify);
    row.temperature = run.config.temperature;
    row.seed = run.config.seed;
    row.batch = run.config.batch;
    row.backend = backend;
    row.numerics = run.config.numerics;
    if (run.acceptance) row.acceptance = "replayed";
    row.threads = exec->threads();
    row.precision = std::string(kernels::to_text(target->precision()));
    if (exec->device() != nullptr && exec->device()->dtype() == kernels::Float16Kind::f16)
        row.precision = "f16";
    row.vocab_id = vocabulary.vocab->id;
    row.tier = std::string(to_text(tier.used));
    RunDescription about{run, tier, *target->tokenizer()};
    about.baseline = baseline;
    if (!baseline) {
        about.head = head.get();
        about.shadows = shadows;
    }
    row.config_json = config_json(about);
    const ReadBandwidth probed = load_probe(machine.cpu_name, exec->threads());
    machine.read_gb_per_s = probed.stream;
    machine.scattered_read_gb_per_s = probed.scattered;
    row.machine_json = to_json(machine);
    return row;
}

DecodeOptions EngineHost::Impl::decode_options(const ResolvedRun& run) const {
    DecodeOptions options;
    options.tree = run.tree;
    options.sampling = {run.config.temperature, run.config.top_p, run.config.top_k, run.config.seed};
    options.verify = run.verify;
    options.batch = run.config.batch;
    options.rounds_there = run.config.gpu_rounds;
    options.max_new = run.config.max_new;
    options.acceptance = run.acceptance;
    // With simulated acceptance the text is meaningless, including its end-of-text tokens.
    options.ignore_eos = run.config.ignore_eos || run.acceptance.has_value();
    // A full head as a shadow head measures more than a few calibration rounds.
    const bool has_full_shadow =
        std::any_of(shadows.begin(), shadows.end(), [](const ShadowHead& s) { return is_full_head(s.text); });
    options.calibration_rounds = has_full_shadow || run.acceptance ? 0 : run.config.calibration_rounds;
    options.shadows = shadows;
    return options;
}

namespace {

/// Ends the run in every consumer, also after an error.
void end_run(Recorder& recorder, const RunRow& row, RunEnd how) {
    const TimeNs now = monotonic_ns();
    recorder.push(RunEnded{row.id, how, now - row.started_monotonic, {row.id, now, utc_ns(), std::nullopt}});
    recorder.flush();
}

ConversationFeed::Settings feed_settings(const ResolvedRun& run) {
    return {.raw = run.config.raw,
            .first_turns = false,
            .whole_answers = run.config.batch > 1,
            .suite = std::filesystem::path(run.config.prompts_file).stem().string()};
}

}  // namespace

/// A run of the capture that is to be decoded with the loaded models.
struct EngineHost::Impl::RunToDecode {
    RunRow row;
    Drafter& drafter;
    LmHead *head = nullptr, *full_head = nullptr;
    DecodeOptions options = {};
    ConversationFeed::Settings feed = {};
    std::string activity = {};  ///< "prompt"
};

/// Decodes the first conversations without a drafter, as a separate run of the capture.
Status EngineHost::Impl::record_baseline(const ResolvedRun& run,
                                         const std::vector<Conversation>& conversations, Recorder& recorder,
                                         DebugGate& gate, const RunHooks& hooks, RunReport& report,
                                         CounterSession* counters) {
    DS_ASSIGN(const auto nothing, make_drafter(std::string(plain_drafter), "", *target, *exec));
    const auto count = std::min(conversations.size(), static_cast<std::size_t>(run.config.baseline));
    const std::vector<Conversation> first(conversations.begin(),
                                          conversations.begin() + static_cast<std::ptrdiff_t>(count));
    const ResolvedRun plain = make_plain_run(run, count);
    RunHooks quiet;
    quiet.frontend = hooks.frontend;
    quiet.phases = hooks.phases;
    quiet.on_progress = hooks.on_progress;
    if (hooks.on_progress) hooks.on_progress(0, "autoregressive baseline");
    RunToDecode what{describe_run(plain, hooks.frontend, report.tier, true), *nothing};
    what.options = decode_options(plain);
    what.options.shadows.clear();
    what.feed = feed_settings(plain);
    what.activity = "autoregressive baseline: prompt";
    const auto done = record(what, first, recorder, gate, quiet, counters);
    end_run(recorder, what.row,
            !done.ok()         ? RunEnd::error
            : gate.cancelled() ? RunEnd::cancelled
                               : RunEnd::ok);
    return done.ok() ? Status() : done.error();
}

/// --tree auto and quick: chooses the tree with the best forecast, and under --head auto its head. Without a
/// forecast the defaults apply. Quick chooses drafter none if plain decoding is forecast to be faster.
Status EngineHost::Impl::choose_tree(ResolvedRun& run, const std::vector<Conversation>& conversations,
                                     DebugGate& gate, const RunHooks& hooks, RunReport& report) {
    const DrafterInfo& info = *find_drafter(run.drafter_id);
    if (!info.drafts) return {};
    TreeAutotuner pilot({*target, *drafter, *exec, decode_options(run), run.config.raw, info.chains_only},
                        conversations, gate, hooks);
    if (!drafter->uses_head()) run.head_candidates.clear();
    const std::vector<HeadCandidate>& candidates = run.head_candidates;
    std::vector<std::string> heads;
    for (const HeadCandidate& one : candidates) heads.push_back(to_text(one.spec));
    const auto use = [&](std::size_t h) -> Result<AutotuneHead> {
        run.head = candidates[h].spec;
        run.artefacts = candidates[h].artefacts;
        DS_TRY(load_heads(run));
        return AutotuneHead{heads[h], head.get(), full_head.get()};
    };
    const bool quick = !run.shipped.empty();
    const AutotuneHead given{drafter->uses_head() ? to_text(*run.head) : "", head.get(), full_head.get()};
    if (quick && candidates.empty()) {
        DS_TRY(pilot.costs(given, run.shipped.at(given.text)));
    } else if (quick) {
        for (std::size_t h = 0; h < heads.size(); ++h) {
            DS_ASSIGN(const AutotuneHead loaded, use(h));
            DS_TRY(pilot.costs(loaded, run.shipped.at(loaded.text)));
        }
    } else if (candidates.empty()) {
        DS_TRY(pilot.chains(given));
        DS_TRY(pilot.trees(given));
    } else {
        DS_TRY(measure_heads(pilot, heads, use));
    }
    report.pilot_rounds = pilot.rounds();
    report.forecasts = run.forecasts = pilot.forecasts();
    if (!run.forecasts.empty()) run.tree = to_tree_spec(run.forecasts.front().tree);
    if (quick && !run.forecasts.empty() && run.forecasts.front().speedup < 1) {
        run.drafter_id = plain_drafter;
        run.drafter_path.clear();
        DS_TRY(load_drafter(run, hooks));
        return load_heads(run);
    }
    if (candidates.empty()) return {};
    // A cancelled pilot has no forecasts: the first candidate is used.
    const auto best = run.forecasts.empty()
                          ? heads.begin()
                          : std::find(heads.begin(), heads.end(), run.forecasts.front().head);
    DS_ASSIGN([[maybe_unused]] const AutotuneHead chosen,
              use(static_cast<std::size_t>(best - heads.begin())));
    return {};
}

Result<std::vector<PromptReport>> EngineHost::Impl::record(const RunToDecode& what,
                                                           const std::vector<Conversation>& conversations,
                                                           Recorder& recorder, DebugGate& gate,
                                                           const RunHooks& hooks, CounterSession* counters) {
    const RunRow& row = what.row;
    recorder.push(RunStarted{row, vocabulary.vocab, {row.id, row.started_monotonic, utc_ns(), std::nullopt}});
    // The system's thread id, so that spans, NVTX ranges and CUDA calls of a thread can be joined.
    PhaseRecorder phases(static_cast<std::uint32_t>(gettid()));
    NvtxMirror mirror;
    GpuPhaseStack gpu_phases;
    TeeRangeSink listeners(&mirror, &gpu_phases);
    // Ranges are emitted for an external tool or another capture in this process, not for our own.
    const bool mirrored = mirror.attached() && (nvtx_tool_listens() || nvtx_capturing());
    NvtxRowSink nvtx_rows(recorder, row.id, row.started_monotonic);
    std::optional<GpuRowSink> gpu_rows;
    std::optional<CounterRowSink> counter_rows;
    TeeRangeSink counted(&mirror, counters);
    if (counters != nullptr) {
        counter_rows.emplace(nvtx_rows, *counters, row.id, row.started_monotonic);
        phases.set_range_sink(mirrored ? static_cast<RangeSink*>(&counted) : counters);
    } else if (row.tier != to_text(Tier::t0)) {
        gpu_rows.emplace(nvtx_rows, gpu_session(), ids, row.id, row.started_monotonic);
        phases.set_range_sink(mirrored ? static_cast<RangeSink*>(&listeners) : &gpu_phases);
    } else if (mirrored) {
        phases.set_range_sink(&mirror);
    }
    phases.set_enabled(hooks.phases);
    phases.set_observer(&gate);
    CaptureOutput capture_output;
    capture_output.sink = gpu_rows       ? static_cast<RecordSink*>(&*gpu_rows)
                          : counter_rows ? static_cast<RecordSink*>(&*counter_rows)
                                         : &nvtx_rows;
    capture_output.ids = &ids;
    capture_output.run_id = row.id;
    capture_output.run_start = row.started_monotonic;
    capture_output.head_text = row.head;
    capture_output.ranks = vocabulary.ranks.empty() ? nullptr : &vocabulary.ranks;
    DecodeSession session(*target, what.drafter, what.head, what.full_head, *exec, what.options,
                          capture_output, phases, gate);
    ConversationFeed feed(*target, conversations, what.feed, hooks, what.activity);
    const Status played = session.run(feed);
    if (gpu_rows) gpu_rows->finish();
    if (counter_rows) counter_rows->finish();
    nvtx_rows.finish();
    if (!played.ok()) return played.error();
    return feed.take_reports();
}

namespace {

/// The capture file of one run. It is removed if nothing was written to it.
class RunFile {
  public:
    static Result<std::unique_ptr<RunFile>> open(const RunConfig& config) {
        auto file = std::make_unique<RunFile>();
        if (config.save.empty()) return file;
        WriterOptions options;
        options.overwrite = config.overwrite;
        options.max_rows = config.save_rows;
        options.max_bytes = static_cast<std::int64_t>(config.save_size);
        options.file_full_policy = config.save_ring ? FileFullPolicy::ring : FileFullPolicy::stop;
        options.queue_full_policy = config.drop_when_full ? QueueFullPolicy::drop : QueueFullPolicy::wait;
        DS_ASSIGN(file->writer_, CaptureWriter::create(config.save, options));
        file->writer_->set_unbounded_push();
        return file;
    }
    RecordSink* sink() { return writer_.get(); }
    void started() { started_ = true; }
    std::string close() {
        if (!writer_) return {};
        const Status closed = writer_->close();
        const std::string path = writer_->path();
        const WriterStats stats = writer_->stats();
        for (const auto& [kind, count] : {std::pair{loss_queue_full, stats.lost_queue},
                                          {loss_limit, stats.lost_limit},
                                          {loss_ring, stats.dropped_ring},
                                          {loss_error, stats.lost_error},
                                          {loss_vocabulary, stats.lost_vocabulary}})
            if (count > 0) losses_.push_back({0, 0, std::string(kind), count});
        writer_.reset();
        std::error_code ignored;
        if (started_ && stats.rows > 0) {
            if (std::filesystem::exists(path, ignored)) path_ = path;
        } else {
            for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix, ignored);
        }
        return closed.ok() ? std::string() : closed.error().message;
    }
    ~RunFile() { close(); }
    /// Returns the rows missing from the file; complete after close().
    const std::vector<LossRow>& losses() const { return losses_; }
    /// Returns the file's path after close(); "" if nothing was recorded and the file was removed.
    const std::string& path() const { return path_; }

  private:
    std::unique_ptr<CaptureWriter> writer_;
    std::string path_;
    std::vector<LossRow> losses_;
    bool started_ = false;
};

void take_window(std::vector<Conversation>& conversations, const RunHooks& hooks) {
    const auto first = std::min(static_cast<std::size_t>(hooks.first_conversation), conversations.size());
    conversations.erase(conversations.begin(), conversations.begin() + static_cast<std::ptrdiff_t>(first));
    if (hooks.conversations > 0 && conversations.size() > static_cast<std::size_t>(hooks.conversations))
        conversations.resize(hooks.conversations);
}

/// Returns the config with the choice of --tree auto or quick, as a user would write it.
RunConfig chosen_config(const ResolvedRun& run) {
    RunConfig config = run.config;
    const bool drafts = find_drafter(run.drafter_id)->drafts;
    if (!drafts) config.drafter = run.drafter_id;
    config.head = drafts && run.head ? to_text(*run.head) : RunConfig().head;
    config.tree = drafts ? to_text(run.tree) : RunConfig().tree;
    return config;
}

Status warn_of_overlap(const ResolvedRun& run, const std::vector<Conversation>& conversations) {
    if (!run.head) return {};
    std::vector<std::string> hashes;
    for (const Conversation& conversation : conversations)
        hashes.push_back(prompt_hash(conversation.turns.front()));
    const auto warn = [&](const ResolvedRun& of) {
        const std::string warning = overlap_warning(*of.head, of.artefacts, hashes, "the run");
        if (!warning.empty()) log_warning("{}", warning);
    };
    warn(run);
    DS_ASSIGN(const std::vector<ResolvedShadow> shadows, resolve_shadows(run));
    for (const ResolvedShadow& shadow : shadows) warn(shadow.run);
    return {};
}

}  // namespace

Result<RunReport> EngineHost::run(const RunConfig& config, Recorder& recorder, DebugGate& gate,
                                  const RunHooks& hooks) {
    DS_ASSIGN(ResolvedRun run, resolve_run(config));
    std::vector<Conversation> conversations = single_prompt(run.config.prompt);
    if (!run.config.prompts_file.empty()) {
        DS_ASSIGN(conversations,
                  read_prompt_file(run.config.prompts_file, run.config.limit, run.config.balanced));
    }
    take_window(conversations, hooks);
    // An unwritable file is reported before the model is loaded. A file to be replaced is kept until its
    // replacement has content.
    std::error_code ignored;
    const bool replaces = run.config.overwrite && std::filesystem::exists(run.config.save, ignored);
    std::unique_ptr<RunFile> file;
    if (!replaces) {
        DS_ASSIGN(file, RunFile::open(run.config));
    }
    RunReport report;
    for (const Conversation& conversation : conversations)
        report.planned_prompts += conversation.turns.size();
    report.tier = impl_->open_run_tier(run);
    if (run.tier != Tier::t0) report.cupti = run.gpu ? gpu_session().state() : make_cupti_api()->probe();
    DS_TRY(impl_->load(run, hooks));
    DS_TRY(ConversationFeed::check(*impl_->target, conversations, run.config.raw));
    // The device has its context here; a refusal must be known before the run's tier is recorded.
    std::unique_ptr<CounterSession> counters;
    if (report.tier.used == Tier::t3) {
        counters = begin_counters(make_counter_api(), report.tier);
        if (!counters) log_warning("{}", report.tier.why);
    }

    report.frontend = hooks.frontend;
    if (hooks.on_started) hooks.on_started();
    gate.set_enabled(false);  // preparation is never held
    if (run.auto_tree) DS_TRY(impl_->choose_tree(run, conversations, gate, hooks, report));
    if (run.auto_tree && hooks.on_chosen) hooks.on_chosen(chosen_config(run));
    DS_TRY(warn_of_overlap(run, conversations));
    if (replaces) {
        DS_ASSIGN(file, RunFile::open(run.config));
    }
    recorder.set_storage(file->sink());
    file->started();
    const bool wants_baseline = run.config.baseline > 0 && find_drafter(run.drafter_id)->drafts;
    if (wants_baseline) {
        const Status done =
            impl_->record_baseline(run, conversations, recorder, gate, hooks, report, counters.get());
        if (!done.ok()) {
            recorder.set_storage(nullptr);
            recorder.flush();
            return done.error();
        }
    }
    gate.set_enabled(true);

    const RunRow row = impl_->describe_run(run, hooks.frontend, report.tier);
    report.run_id = row.id;
    EngineHost::Impl::RunToDecode what{row, *impl_->drafter, impl_->head.get(), impl_->full_head.get()};
    what.options = impl_->decode_options(run);
    what.feed = feed_settings(run);
    what.activity = "prompt";
    auto played = impl_->record(what, conversations, recorder, gate, hooks, counters.get());
    if (played.ok()) report.prompts = std::move(*played);

    report.pinned_workers = impl_->exec->pinned();
    if (const kernels::Device* device = impl_->exec->device()) report.gpu = device->stats();
    report.cancelled = gate.cancelled();
    if (played.ok() && !report.cancelled) {
        DS_ASSIGN(report.exact,
                  check_fast_run(run, *impl_->target, *impl_->exec, conversations, report.prompts));
    }
    end_run(recorder, row, !played.ok() ? RunEnd::error : report.cancelled ? RunEnd::cancelled : RunEnd::ok);
    recorder.set_storage(nullptr);
    recorder.flush();
    report.storage_error = file->close();
    report.storage_losses = file->losses();
    report.capture = file->path();
    if (!played.ok()) return played.error();
    return report;
}

}  // namespace draftscope

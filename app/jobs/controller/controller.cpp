#include "app/jobs/controller/controller.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "app/jobs/kernels/kernels_job.h"
#include "app/jobs/machine/capabilities.h"
#include "app/jobs/replay/setting_replay.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/run_job.h"
#include "app/jobs/run/snapshot_records.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "app/jobs/sweep/sweep_job.h"
#include "base/log.h"
#include "engine/draft/registry.h"
#include "storage/capture_file.h"
#include "storage/import/import_timeline.h"

namespace draftscope {
namespace {

std::string capability_line(const Machine& machine) {
    std::string line = fmt::format("CPU {} · {} cores", machine.isa, machine.cores);
    for (const Capability& capability : machine.capabilities) {
        line += fmt::format(" · {}: {}", capability.name, capability.brief);
    }
    return line;
}

/// Returns one line per capability, with remedies for the missing ones.
std::string capability_details(const Machine& machine) {
    std::string lines;
    for (const Capability& capability : machine.capabilities) {
        lines += fmt::format("{}{}: {}", lines.empty() ? "" : "\n", capability.name, capability.state);
        if (!capability.remedy.empty()) lines += fmt::format("\n    {}", capability.remedy);
    }
    return lines;
}

std::vector<DrafterChoice> drafter_choices() {
    std::vector<DrafterChoice> choices;
    for (const DrafterInfo& info : drafter_registry()) {
        DrafterChoice choice;
        choice.spec = std::string(info.id);
        choice.name = std::string(info.name);
        choice.traits = {info.drafts, info.uses_head};
        choice.usable = !info.needs_weights || !find_asset("drafters/" + choice.spec).empty();
        if (!choice.usable)
            choice.why_not = "no checkpoint for the demo model: give " + choice.spec + ":FOLDER";
        choices.push_back(std::move(choice));
    }
    return choices;
}

std::vector<RuleChoice> rule_choices() {
    std::vector<RuleChoice> choices;
    for (const RuleInfo* rule : rule_registry())
        if (!rule->is_simulated())
            choices.push_back({std::string(rule->id), std::string(rule->summary),
                               rule->losslessness == Losslessness::lossy, rule->own_threshold});
    return choices;
}

constexpr std::chrono::milliseconds follow_interval{200};

/// A capture file that is being read: records are applied as they arrive and published periodically.
class FileLoader final : public RecordSink {
  public:
    FileLoader(const std::string& path, std::shared_ptr<const OnDiskRows> stored) {
        capture_.set_source(path);
        capture_.set_stored(std::move(stored));
    }
    void push(Record record) override {
        capture_.apply(record);
        has_new_records_ = true;
    }
    bool has_new_records() const { return has_new_records_; }
    /// Returns true if a publication is due: first after 0.1 s, then every 0.5 s.
    bool publication_due() const { return std::chrono::steady_clock::now() >= next_publication_; }
    std::shared_ptr<const Snapshot> snapshot() {
        has_new_records_ = false;
        next_publication_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
        return std::make_shared<const Snapshot>(capture_.snapshot(1));
    }

  private:
    Capture capture_;
    bool has_new_records_ = false;
    std::chrono::steady_clock::time_point next_publication_ =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
};

}  // namespace

/// Implementation with one job thread that executes runs, opening and saving in order. Gate commands take
/// effect immediately.
class JobController final : public Controller {
  public:
    explicit JobController(std::function<void()> wake)
        : wake_(std::move(wake)), recorder_([this] { wake_(); }), thread_([this] { work(); }) {}

    ~JobController() override {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
            queue_.clear();
        }
        gate_.cancel();
        changed_.notify_all();
        thread_.join();
    }

    void submit(const Commands& commands) override {
        for (const Command& command : commands) std::visit([this](const auto& c) { take(c); }, command);
    }
    std::shared_ptr<const Snapshot> snapshot() const override { return recorder_.snapshot(); }
    JobStatus status() const override {
        const std::lock_guard lock(mutex_);
        JobStatus now = status_;
        if (now.state == JobState::running && gate_.holding()) {
            now.state = JobState::held;
            now.hold_reason = gate_.reason();
            now.hold_point = gate_.point();
        }
        return now;
    }

  private:
    using Job = std::variant<CmdStart, CmdOpenFile, CmdMeasureKernels, CmdSweep, CmdReplaySetting>;

    // Cancels the current job and clears the queue: a new command replaces older ones. Call with the mutex
    // held.
    void cancel_all() {
        queue_.clear();
        after_start_.clear();
        if (!busy_) {
            status_.state = JobState::idle;
            return;
        }
        status_.state = JobState::stopping;
        gate_.cancel();
    }
    void replace_job(Job job) {
        {
            const std::lock_guard lock(mutex_);
            cancel_all();
            queue_.push_back(std::move(job));
            if (!busy_) status_.state = JobState::loading;
        }
        changed_.notify_all();
    }
    // A start resets the gate when the job begins, so later gate commands are stored and applied after the
    // reset.
    void post_to_gate(std::function<void(DebugGate&)> act) {
        const std::lock_guard lock(mutex_);
        if (queue_.empty())
            act(gate_);
        else
            after_start_.push_back(std::move(act));
    }
    void take(const CmdStart& command) { replace_job(command); }
    void take(const CmdOpenFile& command) { replace_job(command); }
    void take(const CmdMeasureKernels& command) { replace_job(command); }
    void take(const CmdSweep& command) { replace_job(command); }
    void take(const CmdReplaySetting& command) { replace_job(command); }
    void take(const CmdSaveCopy& command) { save_copy(command.path); }
    void take(const CmdOpenOverlay& command) { open_overlay(command.path); }
    void take(const CmdOpenOther& command) { open_other(command.path); }
    void take(const CmdCompare& command) { compare(command.choice); }
    void take(const CmdStop&) {
        const std::lock_guard lock(mutex_);
        cancel_all();
    }
    void take(const CmdPause&) {
        post_to_gate([](DebugGate& gate) { gate.pause(); });
    }
    void take(const CmdResume&) {
        post_to_gate([](DebugGate& gate) { gate.resume(); });
    }
    void take(const CmdStepPhase&) {
        post_to_gate([](DebugGate& gate) { gate.step(StepGranularity::phase); });
    }
    void take(const CmdStepLevel&) {
        post_to_gate([](DebugGate& gate) { gate.step(StepGranularity::level); });
    }
    void take(const CmdStepRound&) {
        post_to_gate([](DebugGate& gate) { gate.step(StepGranularity::round); });
    }
    void take(const CmdWatch& command) {
        post_to_gate([id = command.prompt_id](DebugGate& gate) { gate.watch(id); });
    }
    void take(const CmdBreakpoints& command) {
        gate_.set_breakpoints({command.rejection_depth, command.out_of_vocabulary, command.slow_phase,
                               command.end_of_text, command.text});
    }

    void set_error(const std::string& message) {
        log_error("{}", message);
        const std::lock_guard lock(mutex_);
        status_.error = message;
    }

    /// Runs `work` on a separate thread after earlier requests, so that neither runs nor the window wait for
    /// it.
    void run_in_background(std::function<void()> work) {
        const std::lock_guard lock(background_mutex_);
        background_ = std::jthread([this, work = std::move(work), before = std::move(background_)]() mutable {
            if (before.joinable()) before.join();
            work();
            wake_();
        });
    }

    void open_other(const std::string& path) {
        run_in_background([this, path] {
            auto loaded = load_capture(path);
            if (!loaded.ok()) return set_error(loaded.error().message);
            const std::lock_guard lock(mutex_);
            std::erase_if(status_.others, [&](const auto& other) { return other->source == path; });
            status_.others.push_back(std::move(*loaded));
        });
    }

    void compare(const CompareChoice& choice) {
        {
            const std::lock_guard lock(mutex_);
            status_.comparing = true;
        }
        run_in_background([this, choice] {
            const auto shown = recorder_.snapshot();
            std::vector<std::shared_ptr<const Snapshot>> open = {shown};
            {
                const std::lock_guard lock(mutex_);
                open.insert(open.end(), status_.others.begin(), status_.others.end());
            }
            const auto of = [&](const CompareSide& side) {
                for (const auto& snapshot : open)
                    if (snapshot->source == side.source) return snapshot;
                return shown;
            };
            auto report = std::make_shared<const CompareReport>(
                make_compare_report(choice, *of(choice.a), *of(choice.b)));
            const std::lock_guard lock(mutex_);
            status_.comparison = std::move(report);
            status_.comparing = false;
        });
    }

    void open_overlay(const std::string& path) {
        run_in_background([this, path] {
            std::shared_ptr<const Snapshot> overlay;
            if (!path.empty()) {
                auto imported = import_timeline(path);
                if (imported.ok())
                    overlay = std::move(*imported);
                else
                    set_error(imported.error().message);
            }
            const std::lock_guard lock(mutex_);
            status_.overlay = std::move(overlay);
        });
    }

    void save_copy(const std::string& path) {
        {
            const std::lock_guard lock(mutex_);
            status_.error.clear();
        }
        run_in_background([this, path, snapshot = recorder_.snapshot()] {
            const Status saved = save_snapshot(*snapshot, path);
            if (!saved.ok()) return set_error(saved.error().message);
            log_info("saved {}", path);
            const std::lock_guard lock(mutex_);
            status_.saved_file = path;
            ++status_.saved_files;
        });
    }

    void work() {
        {
            const Machine machine = describe_capabilities();
            const std::string line = capability_line(machine);
            auto heads = head_choices();
            auto drafters = drafter_choices();
            const std::lock_guard lock(mutex_);
            status_.capability_line = line;
            status_.capability_details = capability_details(machine);
            status_.heads = std::move(heads);
            status_.drafters = std::move(drafters);
            status_.rules = rule_choices();
            status_.profiles = shipped_profiles();
            status_.default_model = find_demo_model();
        }
        wake_();
        while (true) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
            if (stop_) return;
            const Job job = std::move(queue_.front());
            queue_.pop_front();
            busy_ = true;
            gate_.reset();
            for (const auto& act : after_start_) act(gate_);
            after_start_.clear();
            status_.error.clear();
            status_.state = JobState::loading;
            lock.unlock();
            std::visit([this](const auto& j) { perform(j); }, job);
            lock.lock();
            busy_ = false;
            status_.state = queue_.empty() ? JobState::idle : JobState::loading;
            status_.activity.clear();
            status_.progress = -1;
            lock.unlock();
            wake_();
        }
    }

    void perform(const CmdStart& command) {
        if (showing_file_) {
            recorder_.clear();
            showing_file_ = false;
        }
        {
            const std::lock_guard lock(mutex_);
            if (stop_) return;
            status_.config = command.config;
            status_.forecast.clear();
            status_.opened_file.clear();
        }
        RunHooks hooks;
        hooks.frontend = "gui";
        hooks.on_progress = [this](double fraction, const std::string& what) {
            const std::lock_guard lock(mutex_);
            status_.activity = what;
            status_.progress = fraction;
            wake_();
        };
        hooks.on_started = [this] {
            const std::lock_guard lock(mutex_);
            if (status_.state == JobState::loading) status_.state = JobState::running;
            status_.activity.clear();
            status_.progress = -1;
        };
        const auto done = host_.run(command.config, recorder_, gate_, hooks);
        if (!done.ok()) {
            const std::string mistakes =
                done.error().kind == ErrorKind::bad_input ? to_text(find_mistakes(command.config)) : "";
            set_error(mistakes.empty() ? done.error().message : mistakes);
        } else if (!done->storage_error.empty()) {
            set_error(done->storage_error);
        } else if (command.forecast) {
            forecast(command.config);
        }
    }

    /// Forecasts the fastest setting of a run's drafter and prompt. The next job may begin at any time.
    void forecast(RunConfig config) {
        {
            const std::lock_guard lock(mutex_);
            if (gate_.cancelled() || !queue_.empty()) return;
            status_.state = JobState::idle;
            status_.activity = "forecasting the fastest setting";
            wake_();
        }
        config.tree = quick_tree;
        config.head = "auto";
        RunHooks hooks;
        hooks.frontend = "gui";
        hooks.only_choose = true;
        hooks.use_kept_forecast = true;
        const auto done = host_.run(config, recorder_, gate_, hooks);
        if (!done.ok() || done->forecasts.empty()) return;
        const SweepSetting& best = done->forecasts.front();
        const std::lock_guard lock(mutex_);
        status_.forecast =
            best.speedup() < 1
                ? "forecast: no setting is faster than plain decoding here"
                : fmt::format("forecast: the fastest setting here ({}, {} head) gives about {:.1f}x",
                              best.tree, best.head, best.speedup());
    }
    void perform(const CmdOpenFile& command) {
        if (detect_timeline_format(command.path) != TimelineFormat::none) {
            show_trace(command.path);
            return;
        }
        auto file = CaptureFollower::open(command.path, default_preload_limit);
        if (!file.ok()) {
            set_error(file.error().message);
            return;
        }
        FileLoader shown(command.path, (*file)->stored());
        bool announced = false;
        const auto show = [&] {
            recorder_.show(shown.snapshot());
            if (announced) return;
            showing_file_ = announced = true;
            show_sweeps(command.path);
            const std::lock_guard lock(mutex_);
            status_.opened_file = command.path;
        };
        // Shows the rows read so far while the rest of a large file is read.
        const auto go_on = [&] {
            if (shown.publication_due()) show();
            return !must_yield();
        };
        Status read = (*file)->poll(shown, go_on);
        if (read.ok()) show();
        while (read.ok() && (*file)->live() && wait_for_growth(command.path)) {
            read = (*file)->poll(shown, go_on);
            if (shown.has_new_records()) show();
        }
        if (!read.ok() && read.error().kind != ErrorKind::cancelled) set_error(read.error().message);
    }

    /// Shows the sweeps of a capture in place of those of the file before it.
    void show_sweeps(const std::string& path) {
        auto saved = load_sweeps(path);
        if (!saved.ok()) set_error(saved.error().message);
        const std::lock_guard lock(mutex_);
        std::erase_if(status_.sweeps, [](const auto& sweep) { return !sweep->file.empty(); });
        if (saved.ok()) status_.sweeps.insert(status_.sweeps.end(), saved->begin(), saved->end());
    }

    /// Returns hooks that report progress as the status, and stop with the gate.
    JobHooks job_hooks(const std::string& what) {
        JobHooks hooks;
        hooks.on_progress = [this, what](double fraction, const std::string& doing) {
            const std::lock_guard lock(mutex_);
            status_.activity = what + doing;
            status_.progress = fraction;
            wake_();
        };
        hooks.cancelled = [this] { return gate_.cancelled(); };
        return hooks;
    }

    void perform(const CmdSweep& command) {
        auto done = run_window_sweep(command.request, job_hooks(sweeping_activity));
        if (!done.ok()) {
            if (done.error().kind != ErrorKind::cancelled) set_error(done.error().message);
            return;
        }
        const std::lock_guard lock(mutex_);
        status_.sweeps.insert(status_.sweeps.begin(), std::move(*done));
    }

    void perform(const CmdReplaySetting& command) {
        if (showing_file_) {
            recorder_.clear();
            showing_file_ = false;
            const std::lock_guard lock(mutex_);
            status_.opened_file.clear();
        }
        const Status done =
            replay_setting(command.setting, host_.ids(), recorder_, job_hooks(replaying_activity));
        if (!done.ok() && done.error().kind != ErrorKind::cancelled) set_error(done.error().message);
    }

    /// Opens another profiler's file, which is read completely and never grows.
    void show_trace(const std::string& path) {
        auto imported = import_timeline(path);
        if (!imported.ok()) {
            set_error(imported.error().message);
            return;
        }
        recorder_.show(std::move(*imported));
        showing_file_ = true;
        const std::lock_guard lock(mutex_);
        status_.opened_file = path;
    }

    /// Returns true if another job waits or the user stopped this one.
    bool must_yield() {
        const std::lock_guard lock(mutex_);
        return stop_ || !queue_.empty() || status_.state == JobState::stopping;
    }
    /// Waits until the file must be read again. Returns false if following has ended. The window is not
    /// blocked.
    bool wait_for_growth(const std::string& path) {
        std::unique_lock lock(mutex_);
        const auto over = [this] { return stop_ || !queue_.empty() || status_.state == JobState::stopping; };
        if (over()) return false;
        if (status_.state != JobState::idle) {
            status_.state = JobState::idle;
            status_.activity = "following " + path;
            wake_();
        }
        return !changed_.wait_for(lock, follow_interval, over);
    }

    void perform(const CmdMeasureKernels& command) {
        auto measured = measure_kernels(command.settings, job_hooks("measuring "));
        if (!measured.ok()) {
            if (measured.error().kind != ErrorKind::cancelled) set_error(measured.error().message);
            return;
        }
        auto report = std::make_shared<const KernelReport>(std::move(*measured));
        const std::lock_guard lock(mutex_);
        status_.kernels = std::move(report);
    }

    std::function<void()> wake_;
    Recorder recorder_;
    DebugGate gate_;
    EngineHost host_;
    bool showing_file_ = false;  ///< job thread only

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> queue_;
    std::vector<std::function<void(DebugGate&)>> after_start_;
    bool busy_ = false;  ///< the job thread executes a job
    JobStatus status_;
    bool stop_ = false;

    std::mutex background_mutex_;
    std::jthread background_;
    std::thread thread_;  ///< last member: starts after the others are constructed
};

std::unique_ptr<Controller> make_controller(std::function<void()> wake) {
    return std::make_unique<JobController>(std::move(wake));
}

}  // namespace draftscope

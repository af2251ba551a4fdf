#include "app/jobs/reproduce/reproduce_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/replay/record_job.h"
#include "app/jobs/replay/replay_models.h"
#include "app/jobs/reproduce/replayed_rows.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/prompt_file.h"
#include "app/jobs/run/run_job.h"
#include "base/clock.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "engine/formats/model_file.h"
#include "engine/formats/synthetic_model.h"
#include "engine/heads/artefact.h"

namespace draftscope {
namespace {

/// A folder in the folder for temporary files. The destructor deletes it with its contents.
class ScratchFolder {
  public:
    ScratchFolder() = default;
    ~ScratchFolder() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;

    Status make() {
        std::error_code error;
        std::string path =
            (std::filesystem::temp_directory_path(error) / "draftscope-reproduce-XXXXXX").string();
        if (error || ::mkdtemp(path.data()) == nullptr)
            return failed("{}: no temporary folder can be made; set TMPDIR to a folder", path);
        path_ = std::move(path);
        return {};
    }
    /// Returns the path of a file in the folder.
    std::string file(const std::string& name) const { return (std::filesystem::path(path_) / name).string(); }

  private:
    std::string path_;
};

/// Returns whether a table needs speeds, which are measured in turns; acceptance alone needs one pass.
bool needs_speed(const PaperTable& table) {
    for (const char* quantity : {"tokens_per_second", "speedup_vs_ar", "speedup_vs_full", "nu"})
        if (table.has(quantity)) return true;
    return false;
}

bool needs_full(const PaperTable& table) {
    for (const char* quantity : {"rho_tau", "speedup_vs_full", "nu"})
        if (table.has(quantity)) return true;
    return false;
}

class Reproduction {
  public:
    Reproduction(const ReproduceConfig& config, DebugGate& gate, const JobHooks& hooks)
        : config_(config), gate_(gate), hooks_(hooks) {}

    Result<ReproduceReport> run() {
        const TimeNs start = monotonic_ns();
        DS_ASSIGN(report_.table, find_paper_table(config_.table, config_.against));
        if (config_.limit < 0) return bad_input("--limit {}: must not be negative", config_.limit);
        for (const std::string& given : config_.head_weights) DS_TRY(check_given_artefacts({&given, 1}));
        DS_TRY(config_.recording.empty() ? write_prompts() : open_recorded());
        for (const PaperBlock& paper : report_.table.blocks) {
            report_.blocks.emplace_back().paper = paper;
            DS_TRY(prepare(report_.blocks.back()));
        }
        DS_TRY(check_rows());
        for (std::size_t b = 0; b < report_.blocks.size() && !report_.cancelled; ++b)
            DS_TRY(measure(report_.blocks[b], b));
        list_differences();
        report_.seconds = seconds(monotonic_ns() - start);
        return std::move(report_);
    }

  private:
    /// Writes the conversations of the table's tasks to one prompt file.
    Status write_prompts() {
        std::vector<std::string> paths = config_.prompts;
        if (paths.empty())
            for (const std::string& file : report_.table.prompts) {
                paths.push_back(find_asset("prompts/" + file));
                if (paths.back().empty())
                    return bad_input("assets/prompts/{}: not found; give --prompts FILE.jsonl", file);
            }
        std::string lines;
        for (const std::string& path : paths) {
            Notes notes;
            DS_ASSIGN(const auto conversations, read_prompt_file(path, 0, false, &notes));
            say_notes(notes);
            for (const Conversation& one : conversations) {
                const auto task = find_task(one.category);
                if (!task) continue;
                int& count = report_.conversations[*task];
                if (config_.limit > 0 && count == config_.limit) continue;
                ++count;
                nlohmann::json line = {{"id", one.id}, {"category", one.category}, {"turns", one.turns}};
                line["system"] = one.system;
                for (const ChatMessage& message : one.history)
                    line["messages"].push_back({{"role", message.role}, {"content", message.content}});
                for (const std::string& turn : one.turns)
                    if (!one.history.empty())
                        line["messages"].push_back({{"role", "user"}, {"content", turn}});
                lines += line.dump() + "\n";
            }
        }
        if (lines.empty())
            return bad_input(
                "{}: no conversation of the table's tasks ({}); give their category in each line",
                fmt::join(paths, ", "), fmt::join(task_categories(), ", "));
        DS_TRY(folder_.make());
        prompts_file_ = folder_.file("prompts.jsonl");
        std::ofstream out(prompts_file_, std::ios::binary);
        out << lines;
        if (!out.flush()) return failed("{}: cannot be written; is the disk full?", prompts_file_);
        return {};
    }

    /// Reads what the recording has, in place of write_prompts().
    Status open_recorded() {
        if (needs_speed(report_.table))
            return bad_input("--recording {}: {} has speeds, which only decoding can measure; leave it out",
                             config_.recording, report_.table.name);
        if (!config_.prompts.empty() || config_.limit > 0 || config_.repeat > 0 || config_.batch > 0)
            return bad_input(
                "--recording {}: has its own prompts; leave --prompts, --limit, --repeat and --batch out",
                config_.recording);
        DS_ASSIGN(recording_, open_recording(replay_config()));
        for (const RecordedPrompt& prompt : recording_->info().prompts)
            if (const auto task = find_task(prompt.category); task && prompt.turn == 0)
                ++report_.conversations[*task];
        if (report_.conversations.empty())
            return bad_input("--recording {}: no prompt of the table's tasks ({})", config_.recording,
                             fmt::join(task_categories(), ", "));
        return {};
    }

    ReplayConfig replay_config() const {
        ReplayConfig replay;
        replay.recording = config_.recording;
        replay.model = config_.model;
        replay.precision = config_.precision;
        replay.threads = config_.threads;
        replay.max_new = config_.max_new;
        replay.mass = false;
        return replay;
    }

    /// Returns the paper's name of a category's task.
    std::optional<std::string> find_task(const std::string& category) const {
        for (const auto& [task, name] : report_.table.tasks)
            if (name == task_of_category(category)) return task;
        return std::nullopt;
    }

    std::vector<std::string> task_categories() const {
        std::vector<std::string> names;
        for (const auto& [task, category] : report_.table.tasks) names.push_back(category);
        return names;
    }

    RunConfig make_run(const ReproducedBlock& block) const {
        RunConfig run;
        run.model = config_.model;
        run.backend = config_.backend;
        run.precision = config_.precision;
        run.threads = config_.threads;
        run.drafter = block.drafter;
        run.tree = config_.tree.empty() ? block.paper.tree : config_.tree;
        run.temperature = block.temperature;
        run.max_new = block.max_new;
        run.batch = block.batch;
        run.ignore_eos = config_.ignore_eos;
        run.raw = config_.raw;
        run.prompts_file = prompts_file_;
        if (recording_ != nullptr) run.prompt = "recorded";
        return run;
    }

    /// Settles the settings of a block, and which of its rows can run.
    Status prepare(ReproducedBlock& block) {
        const PaperBlock& paper = block.paper;
        const auto given = [](int value, int other) { return value > 0 ? value : other; };
        block.drafter = config_.drafter.empty() ? paper.drafter : config_.drafter;
        block.temperature = paper.temperature.value_or(0);
        block.batch = given(config_.batch, paper.batch.value_or(1));
        block.max_new = given(config_.max_new, paper.max_new);
        if (recording_ != nullptr) {
            const RecordingInfo& info = recording_->info();
            if (info.sampling.temperature != block.temperature)
                return bad_input("--recording {}: was decoded at temperature {:g}, the table is at {:g}",
                                 config_.recording, info.sampling.temperature, block.temperature);
            block.max_new = given(config_.max_new, info.max_new);
        }
        // Greedy acceptance is the same in every repetition.
        const bool varies = block.temperature > 0 || needs_speed(report_.table);
        block.repeat = given(config_.repeat, varies ? paper.runs.value_or(1) : 1);
        DS_ASSIGN(const ResolvedRun resolved, resolve_run(make_run(block)));
        block.tree = to_text(resolved.tree);
        if (report_.vocabulary == 0) {
            DS_ASSIGN(const ModelFile model, open_model_file(resolved.config.model));
            report_.vocabulary = model.config.vocab;
            report_.hidden = model.config.hidden;
            report_.target = model.config.name;
            report_.precision = resolved.config.precision;
            report_.backend = resolved.config.backend;
            report_.synthetic = is_synthetic_model(resolved.config.model);
        }
        for (const PaperRow& row : paper.rows) {
            ReproducedRow& made = block.rows.emplace_back();
            made.paper = row;
            made.missing = row.needs;
            if (made.missing.empty()) set_method(block, made);
        }
        return {};
    }

    /// Sets the method of a row, or why it cannot run.
    void set_method(const ReproducedBlock& block, ReproducedRow& row) const {
        RunConfig run = make_run(block);
        if (row.paper.head == plain_drafter) {
            row.method = std::string(plain_drafter);
            return;
        }
        run.head = fill_sizes(row.paper.head, report_.table.vocabulary, report_.vocabulary, report_.hidden);
        if (const std::string file = given_file(run.head); !file.empty())
            run.head += fmt::format("{}file={}", run.head.find(':') == std::string::npos ? ":" : ",", file);
        const auto resolved = resolve_run(run);
        if (!resolved.ok()) {
            row.missing = resolved.error().message;
            return;
        }
        const std::string& path = resolved->artefacts.artefact_path;
        if (!path.empty() && !is_synthetic_model(path)) {
            const auto artefact = HeadArtefact::open(path, resolved->head->id);
            const Status agrees =
                artefact.ok() ? artefact->check_parameters(*resolved->head) : Status(artefact.error());
            if (!agrees.ok()) {
                row.missing = agrees.error().message;
                return;
            }
            if (!artefact->info().joint) row.notes.push_back("weights fitted after the drafter's training");
        }
        if (resolved->head->id == "fr-spec" && resolved->artefacts.ranking_path == demo_ranking_path())
            row.notes.push_back("tokens ranked by the target's responses, not by raw text");
        row.method = fmt::format("{} x {}", block.drafter, run.head);
    }

    /// Returns the first given file whose parameters agree with the head; "" = none.
    std::string given_file(const std::string& head) const {
        const auto spec = parse_head_spec(head);
        if (!spec.ok()) return {};
        for (const std::string& given : config_.head_weights) {
            const std::size_t equals = given.find('=');
            if (given.substr(0, equals) != spec->id || equals == std::string::npos) continue;
            const std::string path = given.substr(equals + 1);
            if (!is_head_artefact(path)) return path;
            const auto artefact = HeadArtefact::open(path, spec->id);
            if (artefact.ok() && artefact->check_parameters(*spec).ok()) return path;
        }
        return {};
    }

    Status check_rows() const {
        std::string reasons;
        for (const ReproducedBlock& block : report_.blocks)
            for (const ReproducedRow& row : block.rows) {
                if (!row.method.empty() && row.method != plain_drafter) return {};
                if (!row.missing.empty()) reasons += fmt::format("; {}: {}", row.paper.name, row.missing);
            }
        return bad_input("reproduce {}: no row can run{}", report_.table.name, reasons);
    }

    Status measure(ReproducedBlock& block, std::size_t place) {
        BenchConfig bench;
        bench.run = make_run(block);
        bench.repeat = block.repeat;
        bench.block = std::max(bench.block, block.batch);
        const bool speed = needs_speed(report_.table);
        bench.plain = report_.table.has("speedup_vs_ar");
        bench.control = speed;
        const std::string full = fmt::format("{} x {}", block.drafter, full_head_id);
        if (needs_full(report_.table)) bench.methods.push_back(full);
        for (const ReproducedRow& row : block.rows)
            if (!row.method.empty()) bench.methods.push_back(row.method);
        if (bench.methods.empty()) return {};
        JobHooks hooks = hooks_;
        const double blocks = static_cast<double>(report_.blocks.size());
        hooks.on_progress = [&](double fraction, const std::string& what) {
            hooks_.report((static_cast<double>(place) + std::max(fraction, 0.0)) / blocks, what);
        };
        if (recording_ != nullptr) {
            DS_TRY(replay(block, bench, hooks));
        } else if (!speed && report_.backend == "cpu") {
            DS_TRY(record_and_replay(block, bench, hooks));
        } else {
            DS_ASSIGN(block.bench, run_bench(bench, gate_, hooks));
        }
        take(block, bench.run, full);
        return {};
    }

    /// Replays the methods along the recordings, of which there is one for each repetition.
    Result<ReplayedRows> replay_methods(const BenchConfig& bench, const RecordingOf& recording_of,
                                        const JobHooks& hooks) const {
        ReplayConfig config = replay_config();
        config.tree = bench.run.tree;
        std::vector<std::string> tasks;
        for (const auto& [task, name] : report_.table.tasks)
            if (report_.conversations.contains(task)) tasks.push_back(name);
        return replay_rows(config, bench.run, bench.methods, tasks, bench.repeat, recording_of, hooks);
    }

    Status replay(ReproducedBlock& block, BenchConfig bench, const JobHooks& hooks) {
        bench.repeat = 1;
        const auto given = [&](int) -> Result<std::string> { return config_.recording; };
        DS_ASSIGN(ReplayedRows replayed, replay_methods(bench, given, hooks));
        block.bench = std::move(replayed.bench);
        add(fmt::format("acceptance: replayed along {}, recorded by {}", config_.recording,
                        recording_->info().source));
        for (const std::string& reason : replayed.estimates) add("estimate: " + reason);
        return {};
    }

    /// Acceptance without speeds: the target decodes the prompts once in each repetition, and the methods are
    /// replayed along its texts. Methods whose replay is an estimate decode.
    Status record_and_replay(ReproducedBlock& block, BenchConfig bench, const JobHooks& hooks) {
        RecordConfig record;
        record.run = bench.run;
        record.run.tree.clear();
        record.source = "draftscope reproduce";
        record.times = false;
        record.overwrite = true;
        record.out = folder_.file("recording");
        const auto recorded = [&](int repetition) -> Result<std::string> {
            record.run.seed = bench.run.seed + static_cast<std::uint64_t>(repetition);
            DS_ASSIGN(const RecordReport done, run_record(record, hooks));
            if (!done.info.complete) return Error{ErrorKind::cancelled, "stopped while recording"};
            return record.out;
        };
        auto replayed = replay_methods(bench, recorded, hooks);
        if (!replayed.ok()) {
            if (replayed.error().kind != ErrorKind::bad_input) return replayed.error();
            add("acceptance: decoded, because it cannot be replayed: " + replayed.error().message);
            DS_ASSIGN(block.bench, run_bench(bench, gate_, hooks));
            return {};
        }
        block.bench = std::move(replayed->bench);
        bench.methods = replayed->inexact;
        if (bench.methods.empty()) return {};
        DS_ASSIGN(const BenchReport decoded, run_bench(bench, gate_, hooks));
        replace_rows(block.bench, decoded);
        return {};
    }

    /// Takes the values of a block's rows from its benchmark.
    void take(ReproducedBlock& block, const RunConfig& run, const std::string& full) {
        report_.cancelled = block.bench.cancelled;
        block.threads = block.bench.threads;
        if (!block.bench.target.empty()) {  // something was decoded
            report_.target = block.bench.target;
            report_.precision = block.bench.precision;
            report_.backend = block.bench.backend;
        }
        const BenchRow* full_row = find_row(block.bench, run, full);
        for (ReproducedRow& row : block.rows) set_values(block, row, run, full_row);
    }

    static const BenchRow* find_row(const BenchReport& bench, const RunConfig& run,
                                    const std::string& method) {
        const auto parsed = parse_bench_method(method, run);
        for (std::size_t m = 0; parsed.ok() && m < bench.table.rows.size(); ++m)
            if (bench.methods[m].name == parsed->name) return &bench.table.rows[m];
        return nullptr;
    }

    void set_values(const ReproducedBlock& block, ReproducedRow& row, const RunConfig& run,
                    const BenchRow* full) const {
        const BenchRow* measured = row.method.empty() ? nullptr : find_row(block.bench, run, row.method);
        const std::vector<std::string>& tasks = block.bench.table.tasks;
        for (const PaperValue& value : row.paper.values) {
            const auto task = report_.table.tasks.find(value.column);
            const bool random = report_.synthetic && (value.quantity == "tau" || value.quantity == "rho_tau");
            if (measured == nullptr || random) {
                row.values.push_back({value, {}, {}});
            } else if (task == report_.table.tasks.end()) {
                row.values.push_back(
                    measured_value(value, *measured, nullptr, full, block.paper.with_prefill));
            } else if (const auto found = std::ranges::find(tasks, task->second); found != tasks.end()) {
                row.values.push_back(measured_value(value, *measured, &measured->tasks[found - tasks.begin()],
                                                    full, block.paper.with_prefill));
            } else {
                row.values.push_back({value, {}, {}});
            }
        }
    }

    void add(std::string line) {
        if (std::ranges::find(report_.differences, line) == report_.differences.end())
            report_.differences.push_back(std::move(line));
    }

    /// Adds a row to those of which `what` holds.
    void add_named(const std::string& what, const std::string& row) {
        std::vector<std::string>& rows = named_[what];
        if (std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
    }

    void list_differences() {
        const PaperTable& table = report_.table;
        const auto named = [](const std::string& text) { return text.empty() ? "not named" : text; };
        add(
            fmt::format("target: {} with {} tokens in the paper, {}{} with {} here; static vocabularies keep "
                        "their share",
                        table.target, table.vocabulary, report_.synthetic ? "SYNTHETIC weights of " : "",
                        report_.target, report_.vocabulary));
        std::vector<std::string> counts;
        for (const auto& [task, text] : table.task_texts)
            if (table.tasks.contains(task))
                counts.push_back(fmt::format(
                    "{} {} ({})", task,
                    report_.conversations.contains(task) ? report_.conversations.at(task) : 0, text));
        add(fmt::format("prompts here, the paper's in brackets: {}", fmt::join(counts, "; ")));
        for (const ReproducedBlock& block : report_.blocks) {
            const PaperBlock& paper = block.paper;
            add(fmt::format("hardware and framework: {}, {} in the paper; {}, {} threads, {} here",
                            named(paper.hardware), named(paper.framework), report_.backend, block.threads,
                            report_.precision));
            add(fmt::format("drafter: {} in the paper, {} here", named(paper.drafter_text), block.drafter));
            add(fmt::format("tree: {} in the paper, {} here", named(paper.tree_text), block.tree));
            add(fmt::format("length limit: {} in the paper, {} here", named(paper.max_new_text),
                            block.max_new));
            if (!paper.temperature) add("temperature: the paper does not say, 0 here");
            if (const int runs = paper.runs.value_or(1); block.repeat != runs)
                add(fmt::format("repetitions: {} in the paper, {} here{}", runs, block.repeat,
                                block.temperature == 0 && !needs_speed(table)
                                    ? ", since greedy acceptance does not vary"
                                    : ""));
            if (!paper.batch) add(fmt::format("batch: the paper does not say, {} here", block.batch));
            if (!paper.assumed.empty()) add("assumed: " + paper.assumed);
            for (const ReproducedRow& row : block.rows) {
                for (const std::string& note : row.notes) add_named(note, row.paper.name);
                const std::string &kind = row.paper.kind, &tau = row.paper.tau_kind;
                if (kind != "measured")
                    add_named("values " + kind + " by the paper's authors", row.paper.name);
                if (tau != kind) add_named("tau " + tau + " by the paper's authors", row.paper.name);
            }
        }
        for (const auto& [what, rows] : named_) add(fmt::format("{}: {}", what, fmt::join(rows, ", ")));
        if (report_.synthetic)
            add("SYNTHETIC weights: acceptance is random, so no tau is shown and speeds mean little");
        if (!table.note.empty()) add("about the table: " + table.note);
    }

    const ReproduceConfig& config_;
    DebugGate& gate_;
    const JobHooks& hooks_;
    ReproduceReport report_;
    std::map<std::string, std::vector<std::string>> named_;  ///< notes, with the names of their rows
    ScratchFolder folder_;
    std::string prompts_file_;                          ///< in folder_; "" = a recording is given
    std::shared_ptr<const DecodeRecording> recording_;  ///< null = the methods decode
};

/// Returns the mean of what `value` returns for the tasks with a positive value.
template <typename Value>
std::optional<double> mean_of_tasks(const BenchRow& row, Value value) {
    double sum = 0, count = 0;
    for (const BenchCell& cell : row.tasks)
        if (value(cell) > 0) {
            sum += value(cell);
            ++count;
        }
    return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::optional<double> value_of(const std::optional<Estimate>& estimate) {
    return estimate ? std::optional(estimate->value) : std::nullopt;
}

}  // namespace

ReproducedValue measured_value(const PaperValue& paper, const BenchRow& row, const BenchCell* cell,
                               const BenchRow* full, bool with_prefill) {
    ReproducedValue out{paper, {}, {}};
    const std::string& quantity = paper.quantity;
    const auto figure = [&](const BenchRow& of, auto value) {
        if (cell == nullptr) return mean_of_tasks(of, value);
        return value(*cell) > 0 ? std::optional<double>(value(*cell)) : std::nullopt;
    };
    const auto tau = [](const BenchCell& c) { return c.tau_unclipped; };
    const auto speed = [with_prefill](const BenchCell& c) {
        return with_prefill ? c.end_to_end_tokens_per_second : c.tokens_per_second;
    };
    const auto ratio = [&](auto value) -> std::optional<double> {
        if (full == nullptr || cell != nullptr) return std::nullopt;
        const auto ours = mean_of_tasks(row, value), base = mean_of_tasks(*full, value);
        return ours && base ? std::optional(*ours / *base) : std::nullopt;
    };
    const auto spread = [&](auto of_task, auto of_mean) {
        return cell != nullptr ? cell->*of_task : row.macro.*of_mean;
    };
    if (quantity == "tau") {
        out.ours = figure(row, tau);
        out.deviation = spread(&BenchCell::tau_unclipped_sd, &BenchMacro::tau_unclipped_sd);
    } else if (quantity == "tokens_per_second") {
        out.ours = figure(row, speed);
        out.deviation = with_prefill
                            ? spread(&BenchCell::end_to_end_tokens_per_second_sd,
                                     &BenchMacro::end_to_end_tokens_per_second_sd)
                            : spread(&BenchCell::tokens_per_second_sd, &BenchMacro::tokens_per_second_sd);
    } else if (quantity == "speedup_vs_ar") {
        const auto& of_task = cell == nullptr ? row.macro.speedup : cell->speedup;
        const auto& end_to_end = cell == nullptr ? row.macro.end_to_end_speedup : cell->end_to_end_speedup;
        out.ours = value_of(with_prefill ? end_to_end : of_task);
        out.deviation = with_prefill
                            ? spread(&BenchCell::end_to_end_speedup_sd, &BenchMacro::end_to_end_speedup_sd)
                            : spread(&BenchCell::speedup_sd, &BenchMacro::speedup_sd);
    } else if (quantity == "active_tokens") {
        out.ours = figure(row, [](const BenchCell& c) { return c.row_tokens; });
    } else if (quantity == "rho_tau") {
        out.ours = ratio(tau);
    } else if (quantity == "speedup_vs_full") {
        out.ours = ratio(speed);
    } else if (quantity == "nu" && cell == nullptr) {
        out.ours = value_of(row.cost.nu);
    }
    return out;
}

Result<ReproduceReport> run_reproduce(const ReproduceConfig& config, DebugGate& gate, const JobHooks& hooks) {
    return Reproduction(config, gate, hooks).run();
}

}  // namespace draftscope

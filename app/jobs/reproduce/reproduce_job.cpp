#include "app/jobs/reproduce/reproduce_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/replay/record_job.h"
#include "app/jobs/replay/replay_models.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/prompt_file.h"
#include "base/clock.h"
#include "base/temporary_folder.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "engine/formats/model_file.h"
#include "engine/formats/synthetic_model.h"
#include "engine/heads/artefact.h"
#include "engine/replay/replay_stats.h"

namespace draftscope {
namespace {

/// What the parts of a reproduction share.
struct Reproduction {
    const ReproduceConfig& config;
    DebugGate& gate;
    const JobHooks& hooks;
    ReproduceReport report = {};
    std::shared_ptr<const DecodeRecording> recording = {};  ///< null = the target decodes here
    TemporaryFolder folder = {};

    std::string file(const char* name) const { return folder.file(name); }
    void add_difference(const std::string& line) {
        if (std::ranges::find(report.differences, line) == report.differences.end())
            report.differences.push_back(line);
    }
};

bool has_any(const PaperTable& table, std::initializer_list<const char*> quantities) {
    return std::ranges::any_of(quantities, [&](const char* one) { return table.has(one); });
}
/// Returns whether a table needs speeds, which are measured in turns; acceptance alone needs one pass.
bool needs_speed(const PaperTable& table) {
    return has_any(table, {"tokens_per_second", "speedup_vs_ar", "speedup_vs_full", "nu"});
}

/// Returns the categories of the prompts that a table needs.
std::string wanted_categories(const PaperTable& table) {
    std::vector<std::string> names;
    for (const auto& [task, category] : table.tasks) names.push_back(category);
    return fmt::format("{}", fmt::join(names, ", "));
}

/// Writes the conversations of the table's tasks to one prompt file, in the folder that it makes.
Status write_prompts(Reproduction& job) {
    ReproduceReport& report = job.report;
    constexpr int least = static_cast<int>(min_conversations);
    if (const int limit = job.config.run.limit; limit < 0 || (limit > 0 && limit < least))
        return bad_input("--limit {}: a cell needs at least {} conversations; give more, or 0 for all", limit,
                         least);
    std::vector<std::string> paths = job.config.prompts;
    if (paths.empty())
        for (const std::string& file : report.table.prompts) {
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
            const std::string task = report.table.task_of(one.category);
            if (task.empty()) continue;
            int& count = report.conversations[task];
            if (job.config.run.limit > 0 && count == job.config.run.limit) continue;
            ++count;
            nlohmann::json line = {
                {"id", one.id}, {"category", one.category}, {"turns", one.turns}, {"system", one.system}};
            for (const ChatMessage& message : one.history)
                line["messages"].push_back({{"role", message.role}, {"content", message.content}});
            if (!one.history.empty())
                for (const std::string& turn : one.turns)
                    line["messages"].push_back({{"role", "user"}, {"content", turn}});
            lines += line.dump() + "\n";
        }
    }
    if (lines.empty())
        return bad_input("{}: no conversation of the table's tasks ({}); give their category in each line",
                         fmt::join(paths, ", "), wanted_categories(report.table));
    DS_TRY(job.folder.make("reproduce"));
    std::ofstream out(job.file("prompts.jsonl"), std::ios::binary);
    out << lines;
    if (!out.flush()) return failed("{}: cannot be written; is the disk full?", job.file("prompts.jsonl"));
    return {};
}

ReplayConfig replay_config(const RunConfig& run, const std::string& recording) {
    ReplayConfig replay;
    replay.recording = recording;
    replay.model = run.model;
    replay.drafter = run.drafter;
    replay.tree = run.tree;
    replay.precision = run.precision;
    replay.threads = run.threads;
    replay.max_new = run.max_new;
    replay.mass = false;
    return replay;
}

/// Reads what the given recording has, in place of write_prompts().
Status open_recorded(Reproduction& job) {
    const ReproduceConfig& config = job.config;
    if (needs_speed(job.report.table))
        return bad_input("--recording {}: {} has speeds, which only decoding can measure; leave it out",
                         config.recording, job.report.table.name);
    if (!config.prompts.empty() || config.run.limit > 0 || config.repeat > 0 || config.run.batch > 0 ||
        !config.run.system.empty())
        return bad_input(
            "--recording {}: has its own prompts; leave --prompts, --system, --limit, --repeat and --batch "
            "out",
            config.recording);
    DS_ASSIGN(job.recording, open_recording(replay_config(config.run, config.recording)));
    for (const RecordedPrompt& prompt : job.recording->info().prompts)
        if (const std::string task = job.report.table.task_of(prompt.category);
            !task.empty() && prompt.turn == 0)
            ++job.report.conversations[task];
    if (job.report.conversations.empty())
        return bad_input("--recording {}: no prompt of the table's tasks ({})", config.recording,
                         wanted_categories(job.report.table));
    return {};
}

/// Settles the settings of a block.
Status settle(Reproduction& job, PaperBlock& block) {
    RunConfig& run = block.run = job.config.run;
    if (run.drafter.empty()) run.drafter = block.drafter;
    if (run.tree.empty()) run.tree = block.tree;
    if (run.verify.empty()) run.verify = block.verify;
    run.temperature = block.temperature.value_or(0);
    if (run.batch == 0) run.batch = block.batch.value_or(1);
    run.limit = 0;  // of each task, and write_prompts() has applied it
    if (job.recording == nullptr) {
        run.prompts_file = job.file("prompts.jsonl");
    } else {
        const RecordingInfo& info = job.recording->info();
        run.prompt = "recorded";
        if (info.sampling.temperature != run.temperature)
            return bad_input("--recording {}: was decoded at temperature {:g}, the table is at {:g}",
                             job.config.recording, info.sampling.temperature, run.temperature);
        if (run.temperature > 0)
            return bad_input("--recording {}: {} checks drafts {}, which only decoding can do; leave it out",
                             job.config.recording, job.report.table.name, block.verified);
        if (run.max_new == 0) run.max_new = info.max_new;
    }
    if (run.max_new == 0) run.max_new = block.max_new;
    // Greedy acceptance is the same in every repetition.
    const bool varies = run.temperature > 0 || needs_speed(job.report.table);
    block.repeat = job.config.repeat > 0 ? job.config.repeat : varies ? block.runs.value_or(1) : 1;
    DS_ASSIGN(const ResolvedRun resolved, resolve_run(run));
    run.tree = to_text(resolved.tree);
    ReproduceReport& report = job.report;
    if (report.vocabulary > 0) return {};
    DS_ASSIGN(const ModelFile model, open_model_file(resolved.config.model));
    report.vocabulary = model.config.vocab;
    report.hidden = model.config.hidden;
    report.target = model.config.name;
    report.precision = resolved.config.precision;
    report.backend = resolved.config.backend;
    report.synthetic = is_synthetic_model(resolved.config.model);
    return {};
}

/// Returns the first given file whose parameters agree with the head; "" = none.
std::string given_file(std::span<const std::string> given, const std::string& head) {
    const auto spec = parse_head_spec(head);
    for (const std::string& one : given) {
        const std::size_t equals = std::min(one.find('='), one.size() - 1);
        if (!spec.ok() || one.substr(0, equals) != spec->id) continue;
        const std::string path = one.substr(equals + 1);
        if (!is_head_artefact(path)) return path;
        const auto artefact = HeadArtefact::open(path, spec->id);
        if (artefact.ok() && artefact->check_parameters(*spec).ok()) return path;
    }
    return {};
}

/// Sets the method of a row and its notes. An error is why it cannot run.
Status set_method(const Reproduction& job, const PaperBlock& block, PaperRow& row) {
    const ReproduceReport& report = job.report;
    if (row.head == plain_drafter) {
        row.method = row.head;
        return {};
    }
    RunConfig run = block.run;
    run.head = fill_sizes(row.head, report.table.vocabulary, report.vocabulary, report.hidden);
    if (const std::string file = given_file(job.config.head_weights, run.head); !file.empty())
        run.head += fmt::format("{}file={}", run.head.find(':') == std::string::npos ? ":" : ",", file);
    DS_ASSIGN(const ResolvedRun resolved, resolve_run(run));
    const std::string& path = resolved.artefacts.artefact_path;
    if (!path.empty() && !is_synthetic_model(path)) {
        DS_ASSIGN(const HeadArtefact artefact, HeadArtefact::open(path, resolved.head->id));
        DS_TRY(artefact.check_parameters(*resolved.head));
        if (!artefact.info().joint) row.notes.emplace_back("weights fitted after the drafter's training");
    }
    if (resolved.head->id == "fr-spec" && resolved.artefacts.ranking_path == demo_ranking_path())
        row.notes.emplace_back("tokens ranked by the target's responses, not by raw text");
    row.method = fmt::format("{} x {}", run.drafter, run.head);
    return {};
}

/// Settles all blocks and rows. bad_input if no row can run.
Status settle_all(Reproduction& job) {
    std::string reasons;
    bool any = false;
    for (PaperBlock& block : job.report.table.blocks) {
        DS_TRY(settle(job, block));
        for (PaperRow& row : block.rows) {
            if (row.needs.empty())
                if (const Status can = set_method(job, block, row); !can.ok())
                    row.needs = can.error().message;
            any = any || (row.needs.empty() && row.method != plain_drafter);
            if (!row.needs.empty()) reasons += fmt::format("; {}: {}", row.name, row.needs);
        }
    }
    return any ? Status() : bad_input("reproduce {}: no row can run{}", job.report.table.name, reasons);
}

const BenchRow* find_row(const BenchReport& bench, const RunConfig& run, const std::string& method) {
    const auto parsed = parse_bench_method(method, run);
    for (std::size_t m = 0; parsed.ok() && m < bench.table.rows.size(); ++m)
        if (bench.methods[m].name == parsed->name) return &bench.table.rows[m];
    return nullptr;
}

/// Replays methods along a recording of greedy texts, in the form of a benchmark without times. `estimates`
/// gets why figures of a method differ from those of decoding, by method; plain decoding has a tau of 1.
Result<BenchReport> replay_methods(const Reproduction& job, const BenchConfig& config,
                                   const std::string& recording,
                                   std::map<std::string, std::vector<std::string>>& estimates,
                                   const JobHooks& hooks) {
    BenchReport bench;
    ReplayConfig replay = replay_config(config.run, recording);
    std::vector<std::string> texts;
    for (const std::string& text : config.methods) {
        DS_ASSIGN(const BenchMethod method, parse_bench_method(text, config.run));
        if (std::ranges::find(bench.methods, method.name, &BenchMethod::name) != bench.methods.end())
            continue;
        texts.push_back(text);
        bench.methods.push_back(method);
        if (drafter_traits(method.drafter).drafts) replay.heads.push_back(method.head);
    }
    DS_ASSIGN(const ReplayReport report, run_replay(replay, hooks));
    const RecordingInfo& info = report.recording->info();
    const std::vector<std::size_t> conversations = conversation_of_prompts(info.prompts);
    for (std::size_t p = 0; p < info.prompts.size(); ++p)
        bench.samples.prompts.push_back({info.prompts[p].category, conversations[p], 0});
    bench.samples.methods.resize(bench.methods.size());
    std::size_t head = 0;  // those that draft are the report's heads, in their order
    for (std::size_t m = 0; m < bench.methods.size(); ++m) {
        BenchMethodSamples& samples = bench.samples.methods[m];
        samples.resize(1, info.prompts.size());
        const bool drafts = drafter_traits(bench.methods[m].drafter).drafts;
        for (std::size_t p = 0; p < info.prompts.size(); ++p) {
            if (job.report.table.task_of(info.prompts[p].category).empty()) continue;
            ReplayStats stats;
            stats.rounds = stats.committed = drafts ? 0 : 1;
            if (drafts) stats.add(report.result.rounds[head][p]);
            HeadSample& sample = samples.units[0][p];
            sample.rounds = static_cast<double>(stats.rounds);
            sample.committed = static_cast<double>(stats.committed);
            sample.accepted = static_cast<double>(stats.accepted);
            samples.active_rows[p] = stats.active_rows_sum;
            samples.row_tokens[p] = stats.row_tokens_sum;
        }
        if (!drafts) continue;
        for (std::size_t f = 0; f < bench.methods.size(); ++f)
            if (is_full_head(bench.methods[f].head) && drafter_traits(bench.methods[f].drafter).drafts)
                samples.full = f;
        if (!report.heads[head].estimates.empty()) estimates[texts[m]] = report.heads[head].estimates;
        ++head;
    }
    bench.target = info.target.name;
    bench.precision = report.precision;
    bench.backend = "cpu";
    bench.acceptance = "replayed";
    bench.threads = report.threads;
    bench.repeat = 1;
    bench.first_seed = info.sampling.seed;
    bench.conversations = bench.finished_conversations =
        static_cast<std::size_t>(std::ranges::count(info.prompts, 0, &RecordedPrompt::turn));
    bench.table = bench_table(bench.samples);
    return bench;
}

/// Decodes the methods that a replay only estimates, over the prompts of the recording, and takes their
/// samples.
Status decode_estimates(const Reproduction& job, BenchConfig config, const std::string& recording,
                        BenchReport& bench, const JobHooks& hooks) {
    config.run.prompts_file = recording;
    config.run.raw = false;  // the recording has whole prompts
    config.run.system.clear();
    config.run.template_switches.clear();
    DS_ASSIGN(const BenchReport decoded, run_bench(config, job.gate, hooks));
    for (std::size_t d = 0; d < decoded.methods.size(); ++d) {
        const auto found = std::ranges::find(bench.methods, decoded.methods[d].name, &BenchMethod::name);
        BenchMethodSamples& samples = bench.samples.methods[found - bench.methods.begin()];
        const auto full = samples.full;
        samples = decoded.samples.methods[d];
        samples.full = full;
    }
    bench.cancelled = decoded.cancelled;
    bench.table = bench_table(bench.samples);
    return {};
}

/// Greedy acceptance without speeds: the target decodes the prompts once, and the methods are replayed along
/// its texts. Methods whose replay is an estimate decode, unless the recording was given.
Result<BenchReport> measure_acceptance(Reproduction& job, BenchConfig config, const JobHooks& hooks) {
    std::map<std::string, std::vector<std::string>> estimates;
    if (job.recording != nullptr) {
        DS_ASSIGN(BenchReport bench, replay_methods(job, config, job.config.recording, estimates, hooks));
        job.add_difference(fmt::format("acceptance: replayed along {}, recorded by {}", job.config.recording,
                                       job.recording->info().source));
        for (const auto& [method, reasons] : estimates)
            for (const std::string& reason : reasons) job.add_difference("estimate: " + reason);
        return bench;
    }
    RecordConfig record;
    record.run = config.run;
    record.run.tree.clear();
    record.source = "draftscope reproduce";
    record.times = false;
    record.overwrite = true;
    record.out = job.file("recording");
    DS_ASSIGN(const RecordReport done, run_record(record, hooks));
    if (!done.info.complete) return Error{ErrorKind::cancelled, "stopped while recording"};
    auto bench = replay_methods(job, config, record.out, estimates, hooks);
    if (!bench.ok()) {
        if (bench.error().kind != ErrorKind::bad_input) return bench;
        job.add_difference("acceptance: decoded, because it cannot be replayed: " + bench.error().message);
        return run_bench(config, job.gate, hooks);
    }
    config.methods.clear();
    for (const auto& [method, reasons] : estimates) config.methods.push_back(method);
    if (!config.methods.empty()) DS_TRY(decode_estimates(job, config, record.out, *bench, hooks));
    return bench;
}

/// Measures the methods of a block and takes our values.
Status measure(Reproduction& job, PaperBlock& block, const JobHooks& hooks) {
    ReproduceReport& report = job.report;
    const PaperTable& table = report.table;
    const bool speed = needs_speed(table);
    BenchConfig config;
    config.run = block.run;
    config.repeat = block.repeat;
    config.block = std::max(config.block, block.run.batch);
    config.plain = table.has("speedup_vs_ar");
    config.control = speed;
    if (has_any(table, {"tau", "rho_tau", "speedup_vs_full", "nu"}))
        config.methods.push_back(fmt::format("{} x {}", block.run.drafter, full_head_id));
    for (const PaperRow& row : block.rows)
        if (!row.method.empty()) config.methods.push_back(row.method);
    if (config.methods.empty()) return {};
    const bool replays = !speed && block.run.temperature == 0 && report.backend == "cpu";
    DS_ASSIGN(block.bench,
              replays ? measure_acceptance(job, config, hooks) : run_bench(config, job.gate, hooks));
    report.cancelled = block.bench.cancelled;
    if (!block.bench.target.empty()) {  // something was decoded
        report.target = block.bench.target;
        report.precision = block.bench.precision;
        report.backend = block.bench.backend;
    }
    const std::vector<std::string>& tasks = block.bench.table.tasks;
    for (PaperRow& row : block.rows) {
        const BenchRow* measured =
            row.method.empty() ? nullptr : find_row(block.bench, block.run, row.method);
        for (PaperValue& value : row.values) {
            if (measured == nullptr) continue;
            if (report.synthetic && (value.quantity == "tau" || value.quantity == "rho_tau")) continue;
            const auto task = table.tasks.find(value.column);
            const auto place =
                task == table.tasks.end() ? tasks.end() : std::ranges::find(tasks, task->second);
            if (task != table.tasks.end() && place == tasks.end()) continue;
            const BenchCell* cell = place == tasks.end() ? nullptr : &measured->tasks[place - tasks.begin()];
            value = measured_value(std::move(value), *measured, cell, block.with_prefill);
        }
        if (measured == nullptr) continue;
        const BenchMacro& mean = measured->macro;
        if (!report.synthetic) row.rho_tau = mean.rho_tau;
        row.speedup_vs_full = block.with_prefill ? mean.end_to_end_speedup_vs_full : mean.speedup_vs_full;
    }
    return {};
}

/// Adds what differs in the settings of a block. `named` gets notes, with the names of their rows.
void add_differences(Reproduction& job, const PaperBlock& block,
                     std::map<std::string, std::vector<std::string>>& named) {
    const RunConfig& run = block.run;
    const auto add = [&](const std::string& what, const std::string& paper, const std::string& here) {
        job.add_difference(
            fmt::format("{}: {} in the paper, {} here", what, paper.empty() ? "not named" : paper, here));
    };
    const auto or_unnamed = [](const std::string& text) { return text.empty() ? "not named" : text; };
    add("hardware and framework",
        fmt::format("{}, {}", or_unnamed(block.hardware), or_unnamed(block.framework)),
        fmt::format("{}, {} threads, {}", job.report.backend, block.bench.threads, job.report.precision));
    add("drafter", block.drafter_text, run.drafter);
    add("tree", block.tree_text, run.tree);
    add("length limit", block.max_new_text, std::to_string(run.max_new));
    if (!block.temperature) job.add_difference("temperature: the paper does not say, 0 here");
    if (run.temperature > 0) add("check of drafts", block.verified, "--verify " + run.verify);
    if (!run.system.empty()) add("system turn", "", fmt::format("\"{}\"", run.system));
    if (const int runs = block.runs.value_or(1); block.repeat != runs)
        job.add_difference(fmt::format("repetitions: {} in the paper, {} here{}", runs, block.repeat,
                                       run.temperature == 0 && !needs_speed(job.report.table)
                                           ? ", since greedy acceptance does not vary"
                                           : ""));
    if (!block.batch) job.add_difference(fmt::format("batch: the paper does not say, {} here", run.batch));
    if (!block.assumed.empty()) job.add_difference("assumed: " + block.assumed);
    const auto name = [&](const std::string& what, const std::string& row) {
        std::vector<std::string>& rows = named[what];
        if (std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
    };
    for (const PaperRow& row : block.rows) {
        for (const std::string& note : row.notes) name(note, row.name);
        if (row.kind != "measured") name("values " + row.kind + " by the paper's authors", row.name);
        if (row.tau_kind != row.kind) name("tau " + row.tau_kind + " by the paper's authors", row.name);
    }
}

void list_differences(Reproduction& job) {
    ReproduceReport& report = job.report;
    const PaperTable& table = report.table;
    job.add_difference(
        fmt::format("target: {} with {} tokens in the paper, {}{} with {} here; static vocabularies keep "
                    "their share",
                    table.target, table.vocabulary, report.synthetic ? "SYNTHETIC weights of " : "",
                    report.target, report.vocabulary));
    std::vector<std::string> counts, few;
    for (const auto& [task, category] : table.tasks) {
        const auto found = report.conversations.find(task);
        const int count = found == report.conversations.end() ? 0 : found->second;
        counts.push_back(fmt::format("{} {} ({})", task, count, table.task_texts.at(task)));
        if (count == 0) report.tasks_left_out.push_back(task);
        if (count > 0 && count < static_cast<int>(min_conversations)) few.push_back(task);
    }
    job.add_difference(fmt::format("prompts here, the paper's in brackets: {}", fmt::join(counts, "; ")));
    if (!few.empty())
        job.add_difference(fmt::format("too few to compare, under {} conversations: {}", min_conversations,
                                       fmt::join(few, ", ")));
    if (!report.tasks_left_out.empty())
        job.add_difference(
            fmt::format("averages here are without {}", fmt::join(report.tasks_left_out, ", ")));
    std::map<std::string, std::vector<std::string>> named;
    for (const PaperBlock& block : table.blocks) add_differences(job, block, named);
    for (const auto& [what, rows] : named)
        job.add_difference(fmt::format("{}: {}", what, fmt::join(rows, ", ")));
    std::string shares;
    for (const PaperBlock& block : table.blocks)
        for (const PaperRow& row : block.rows)
            for (const PaperValue& value : row.values)
                if (value.quantity == "active_tokens" && value.column == "Average" && value.ours &&
                    value.value)
                    shares += fmt::format("; {} {:.1f} % of the vocabulary here, {:.1f} % in the paper",
                                          row.name, 100 * value.ours->value / report.vocabulary,
                                          100 * *value.value / table.vocabulary);
    if (!shares.empty())
        job.add_difference("active_tokens: one row's shortlist, a call reads the union of its rows'" +
                           shares);
    if (report.synthetic)
        job.add_difference(
            "SYNTHETIC weights: acceptance is random, so no tau is shown and speeds mean little");
    if (!table.note.empty()) job.add_difference("about the table: " + table.note);
}

std::optional<Estimate> estimate_of(const std::optional<double>& value,
                                    const std::optional<Interval>& interval = {}) {
    return value.value_or(0) > 0 ? std::optional(Estimate{*value, interval}) : std::nullopt;
}

/// Sets what a task's cell and the mean over tasks have in common.
template <typename Cell>
void set_ours(const Cell& cell, bool with_prefill, PaperValue& value) {
    if (value.quantity == "tau") {
        value.ours_deviation = cell.tau_unclipped_sd;
    } else if (value.quantity == "tokens_per_second") {
        value.ours = estimate_of(with_prefill ? cell.end_to_end_tokens_per_second : cell.tokens_per_second);
        value.ours_deviation =
            with_prefill ? cell.end_to_end_tokens_per_second_sd : cell.tokens_per_second_sd;
    } else if (value.quantity == "speedup_vs_ar") {
        value.ours = with_prefill ? cell.end_to_end_speedup : cell.speedup;
        value.ours_deviation = with_prefill ? cell.end_to_end_speedup_sd : cell.speedup_sd;
    } else if (value.quantity == "active_tokens") {
        value.ours = estimate_of(cell.row_tokens);
    }
}

}  // namespace

PaperValue measured_value(PaperValue value, const BenchRow& row, const BenchCell* cell, bool with_prefill) {
    const std::string& quantity = value.quantity;
    if (cell != nullptr) {
        set_ours(*cell, with_prefill, value);
        if (quantity == "tau") value.ours = estimate_of(cell->tau_unclipped, cell->tau_unclipped_interval);
        return value;
    }
    const BenchMacro& mean = row.macro;
    set_ours(mean, with_prefill, value);
    if (quantity == "tau") value.ours = mean.tau_unclipped;
    if (quantity == "rho_tau") value.ours = mean.rho_tau;
    if (quantity == "speedup_vs_full")
        value.ours = with_prefill ? mean.end_to_end_speedup_vs_full : mean.speedup_vs_full;
    if (quantity == "nu") value.ours = row.cost.nu;
    return value;
}

Result<ReproduceReport> run_reproduce(const ReproduceConfig& config, DebugGate& gate, const JobHooks& hooks) {
    const TimeNs start = monotonic_ns();
    Reproduction job{config, gate, hooks};
    ReproduceReport& report = job.report;
    DS_ASSIGN(report.table, find_paper_table(config.table, config.against));
    for (const std::string& given : config.head_weights) DS_TRY(check_given_artefacts({&given, 1}));
    DS_TRY(config.recording.empty() ? write_prompts(job) : open_recorded(job));
    DS_TRY(settle_all(job));
    std::vector<PaperBlock>& blocks = report.table.blocks;
    for (std::size_t b = 0; b < blocks.size() && !report.cancelled; ++b) {
        JobHooks part = hooks;
        part.on_progress = [&](double fraction, const std::string& what) {
            hooks.report(
                (static_cast<double>(b) + std::max(fraction, 0.0)) / static_cast<double>(blocks.size()),
                what);
        };
        DS_TRY(measure(job, blocks[b], part));
    }
    list_differences(job);
    report.seconds = seconds(monotonic_ns() - start);
    return std::move(report);
}

}  // namespace draftscope

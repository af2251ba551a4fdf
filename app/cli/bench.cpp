#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/head_tables.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/shard_option.h"
#include "app/cli/tables.h"
#include "app/cli/version.h"
#include "app/jobs/bench/bench_job.h"
#include "app/jobs/resolve/resolve.h"
#include "base/format_count.h"
#include "engine/draft/registry.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct BenchArguments {
    BenchConfig config;
    std::string heads, shard;
    bool no_plain = false, no_control = false;
    JobOutput output;
};

bool has_text_of_first(const BenchReport& report, std::size_t m) {
    return report.same[m] == report.compared[m];
}

constexpr auto cell_fields =
    join(null_if_none(DS_FIELDS(BenchCell, tau, tau_unclipped, tokens_per_second,
                                end_to_end_tokens_per_second, active_rows, row_tokens)),
         DS_FIELDS(BenchCell, prompts, conversations, tau_interval, tau_unclipped_interval, tau_sd,
                   tau_unclipped_sd, tokens_per_second_sd, speedup_sd, end_to_end_tokens_per_second_sd,
                   end_to_end_speedup_sd),
         with_intervals(DS_FIELDS(BenchCell, speedup, end_to_end_speedup)));

/// Means over tasks, as the papers' averages are; the cells of a method are sums over texts.
constexpr auto macro_fields =
    join(DS_FIELDS(BenchMacro, tau, tau_sd, tau_unclipped, tau_unclipped_sd, tokens_per_second,
                   tokens_per_second_sd, speedup_sd, end_to_end_tokens_per_second,
                   end_to_end_tokens_per_second_sd, end_to_end_speedup_sd, row_tokens),
         intervals_of(DS_FIELDS(BenchMacro, tau_unclipped)),
         with_intervals(DS_FIELDS(BenchMacro, speedup, end_to_end_speedup, rho_tau, speedup_vs_full,
                                  end_to_end_speedup_vs_full)));

json ratio_json(const Estimate& ratio, std::optional<bool> differs) {
    return {{"ratio", ratio},
            {"interval", estimate_interval_json(ratio)},
            {"differs", to_json_value<json>(differs)}};
}

json pair_json(const BenchReport& report, std::size_t a, std::size_t b, const Estimate& ratio,
               std::optional<bool> differs) {
    json out = ratio_json(ratio, differs);
    out["a"] = report.methods[a].name;
    out["b"] = report.methods[b].name;
    return out;
}

json cells_json(const std::vector<BenchCell>& cells, const std::vector<std::string>& names, const char* key) {
    json out = list_of(cell_fields)(cells);
    for (std::size_t c = 0; c < cells.size(); ++c) out[c][key] = names[c];
    return out;
}

json method_json(const BenchReport& report, std::size_t m) {
    const BenchRow& row = report.table.rows[m];
    json out = write_fields(cell_fields, row.all);
    out.update(write_fields(join(field("method", &BenchMethod::name), DS_FIELDS(BenchMethod, drafter, head),
                                 null_if_none(field("tree", &BenchMethod::resolved_tree))),
                            report.methods[m]));
    out["same_text"] = has_text_of_first(report, m);
    out["categories"] = cells_json(row.categories, report.table.categories, "category");
    out["tasks"] = cells_json(row.tasks, report.table.tasks, "task");
    out["mean_of_tasks"] = write_fields(macro_fields, row.macro);
    const auto against_best = report.table.against_best(m);
    out["against_best"] =
        against_best ? ratio_json(against_best->ratio, against_best->differs()) : json(nullptr);
    out["latency"] = latency_json(report.latency[m]);
    out["reads"] = report.reads[m].head_ns > 0 ? reads_json(report.reads[m]) : json(nullptr);
    json& against_full = out["against_full"] = nullptr;
    if (report.samples.methods[m].full) {
        against_full = write_fields(cost_fields, row.cost);
        against_full["intervals"] = intervals_json(row.cost);
    }
    return out;
}

std::vector<std::string> machine_warnings(const BenchReport& report) {
    std::vector<std::string> names;
    for (const BenchMethod& method : report.methods) names.push_back(method.name);
    std::vector<std::string> warnings = drift_warnings(report.drift, names);
    if (std::string floor = noise_floor_warning(report.table); !floor.empty())
        warnings.insert(warnings.begin(), std::move(floor));
    return warnings;
}

/// Drift of the machine's speed, measured by verifications of equal trees: between methods, and between
/// blocks.
json drift_json(const BenchReport& report) {
    json methods = json::array(), blocks = json::array();
    for (const BenchDrift::Methods& one : report.drift.methods)
        methods.push_back(pair_json(report, one.a, one.b, one.control.ratio, one.control.differs));
    for (const BenchDrift::Blocks& one : report.drift.blocks)
        blocks.push_back({{"method", report.methods[one.method].name}, {"low", one.low}, {"high", one.high}});
    return {{"control", "verification of equal trees"},
            {"blocks_per_repetition", report.drift.block_count},
            {"methods", std::move(methods)},
            {"blocks", std::move(blocks)}};
}

/// All pairs of methods: the decoding speed of b relative to a.
json pairs_json(const BenchReport& report) {
    json out = json::array();
    for (const BenchPair& pair : report.table.pairs)
        out.push_back(pair_json(report, pair.a, pair.b, pair.ratio, pair.differs()));
    return out;
}

json noise_floor_json(const BenchReport& report) {
    if (!report.table.noise_floor) return nullptr;
    return {{"method", report.methods.front().name},
            {"ratio", report.table.noise_floor->value},
            {"interval", estimate_interval_json(*report.table.noise_floor)}};
}

json bench_json(const BenchReport& report, const Shard& shard) {
    json methods = json::array();
    for (std::size_t m = 0; m < report.methods.size(); ++m) methods.push_back(method_json(report, m));
    json out = write_fields(join(DS_FIELDS(BenchReport, target, synthetic, acceptance, precision, backend,
                                           verify, temperature, threads, batch, repeat, first_seed, block,
                                           cancelled, conversations, finished_conversations, notes, seconds),
                                 null_if_none(DS_FIELDS(BenchReport, capture)), field("pairs", pairs_json),
                                 field("noise_floor", noise_floor_json), field("machine", drift_json),
                                 field("warnings", machine_warnings)),
                            report);
    out.update({{"version", version},
                {"tier", "T0"},
                {"shard", shard_json(shard)},
                {"best", report.table.best ? json(report.methods[*report.table.best].name) : json(nullptr)},
                {"complete", !report.cancelled},
                {"methods", std::move(methods)}});
    return out;
}

std::string with_sd(double value, const std::optional<double>& sd, int digits) {
    return positive(value, digits) + (sd ? fmt::format(" +-{:.{}f}", *sd, digits) : std::string());
}

/// Returns the speed relative to the fastest method; "~" marks a method that is not shown to be slower.
std::string against_best_text(const BenchReport& report, std::size_t m) {
    if (report.table.best == m) return "best";
    const auto pair = report.table.against_best(m);
    if (!pair) return "-";
    return fmt::format("{:.3f}{}", pair->ratio.value, pair->differs().value_or(true) ? "" : " ~");
}

std::string method_table(const BenchReport& report) {
    std::vector<std::string> header = {"method", "prompts",     "tau",    "unclipped", "tok/s", "x AR",
                                       "SD",     "prefill too", "x best", "rows",      "text"};
    if (!report.samples.plain) header[5] = header[7] = "-";
    std::vector<std::vector<std::string>> rows;
    for (std::size_t m = 0; m < report.methods.size(); ++m) {
        const BenchCell& cell = report.table.rows[m].all;
        rows.push_back(
            {report.methods[m].name, std::to_string(cell.prompts), with_sd(cell.tau, cell.tau_sd, 3),
             positive(cell.tau_unclipped, 3), with_sd(cell.tokens_per_second, cell.tokens_per_second_sd, 1),
             with_interval(cell.speedup), number(cell.speedup_sd, 3), with_interval(cell.end_to_end_speedup),
             against_best_text(report, m),
             cell.active_rows > 0 ? size_text(cell.row_tokens, cell.active_rows) : "-",
             has_text_of_first(report, m)
                 ? "same"
                 : fmt::format("{} of {} differ", report.compared[m] - report.same[m], report.compared[m])});
    }
    return format_table(header, rows);
}

std::string model_table(const BenchReport& report) {
    std::vector<std::vector<std::string>> rows;
    for (std::size_t m = 0; m < report.methods.size(); ++m) {
        const auto full = report.samples.methods[m].full;
        if (!full || *full == m) continue;
        const AcceptanceCost& cost = report.table.rows[m].cost;
        rows.push_back({report.methods[m].name, with_interval(cost.rho_tau), with_interval(cost.nu),
                        with_interval(cost.kappa), with_interval(cost.predicted),
                        with_interval(cost.measured), difference(cost.unexplained)});
    }
    if (rows.empty()) return {};
    return "\n" +
           format_table(
               {"against full", "rho_tau", "nu", "kappa", "predicted x", "measured x", "unexplained"}, rows);
}

/// Returns the table of latencies, in milliseconds.
std::string latency_table(const BenchReport& report) {
    std::vector<std::vector<std::string>> rows;
    for (std::size_t m = 0; m < report.methods.size(); ++m) {
        const Latency& one = report.latency[m];
        const auto ms = [](const Summary& of, std::optional<double> value) {
            return number(of.n > 0 ? value : std::nullopt, 2);
        };
        rows.push_back({report.methods[m].name, ms(one.first_token_ms, one.first_token_ms.median),
                        ms(one.inter_token_ms, one.inter_token_ms.median),
                        ms(one.inter_token_ms, one.inter_token_ms.p99),
                        ms(one.output_gap_ms, one.output_gap_ms.median),
                        ms(one.output_gap_ms, one.output_gap_ms.p99)});
    }
    return "\n" +
           format_table(
               {"latency, ms", "first token p50", "inter-token p50", "p99", "output every p50", "p99"}, rows);
}

std::string method_reads(const BenchReport& report) {
    std::vector<NamedReads> reads;
    for (std::size_t m = 0; m < report.methods.size(); ++m) {
        if (report.reads[m].head_ns > 0) reads.push_back({report.methods[m].name, report.reads[m]});
    }
    return reads_table("a round's reads", reads);
}

/// Returns the table method x task with the mean of the tasks: the speed-up, or tokens per second without
/// plain decoding.
std::string matrix(const BenchReport& report) {
    if (report.table.tasks.size() < 2) return {};
    std::vector<std::string> header = {report.samples.plain ? "x AR by task" : "tok/s by task"};
    for (const std::string& task : report.table.tasks) header.push_back(or_dash(task));
    header.insert(header.end(), {"mean of tasks", "tau, mean of tasks", "unclipped"});
    std::vector<std::vector<std::string>> rows;
    for (std::size_t m = 0; m < report.methods.size(); ++m) {
        const BenchMacro& macro = report.table.rows[m].macro;
        std::vector<std::string> row = {report.methods[m].name};
        for (const BenchCell& cell : report.table.rows[m].tasks)
            row.push_back(report.samples.plain
                              ? with_sd(cell.speedup ? cell.speedup->value : 0, cell.speedup_sd, 2)
                              : with_sd(cell.tokens_per_second, cell.tokens_per_second_sd, 1));
        row.push_back(report.samples.plain
                          ? with_interval(macro.speedup)
                          : with_sd(macro.tokens_per_second.value_or(0), macro.tokens_per_second_sd, 1));
        row.push_back(with_sd(macro.tau.value_or(0), macro.tau_sd, 3));
        row.push_back(
            with_sd(macro.tau_unclipped ? macro.tau_unclipped->value : 0, macro.tau_unclipped_sd, 3));
        rows.push_back(std::move(row));
    }
    return "\n" + format_table(header, rows);
}

/// Returns the number of conversations in the largest comparison.
std::size_t max_conversations(const BenchReport& report) {
    std::size_t out = 0;
    for (const BenchRow& row : report.table.rows)
        out = std::max({out, row.all.conversations, row.cost.conversations});
    return out;
}

bool has_tie_with_best(const BenchReport& report) {
    for (std::size_t m = 0; m < report.methods.size(); ++m)
        if (const auto pair = report.table.against_best(m); pair && !pair->differs().value_or(true))
            return true;
    return false;
}

void print_bench(const BenchReport& report) {
    print("{}{}  {}  {} threads  batch {}  {}  tier 0\n\n", report.target,
          report.synthetic ? " (SYNTHETIC weights)" : "", report.precision, report.threads, report.batch,
          temperature_text(report.temperature));
    if (report.acceptance != "real")
        print("SIMULATED ACCEPTANCE: drafts were not verified by the target; texts and tau mean nothing\n\n");
    for (const BenchMethod& method : report.methods)
        if (method.tree.empty() && !method.resolved_tree.empty()) {
            print("tree {} if a method names none\n\n", method.resolved_tree);
            break;
        }
    if (report.cancelled && report.finished_conversations == 0) {
        print("cancelled before every method had decoded a conversation (of {}): nothing to compare\n",
              report.conversations);
        return;
    }
    print("{}{}{}{}{}", method_table(report), matrix(report), model_table(report), latency_table(report),
          method_reads(report));
    print("\nblocks of {} in alternating order; {}; SD and +- over {}; {:.0f} s\n", report.block,
          interval_text(max_conversations(report)), format_count(report.repeat, "repetition"),
          report.seconds);
    if (has_tie_with_best(report)) print("~ is not shown to be slower than the best\n");
    if (report.table.noise_floor)
        print("noise floor: {} against itself {}\n", report.methods.front().name,
              with_interval(report.table.noise_floor));
    for (const std::string& warning : machine_warnings(report)) print("note: {}\n", warning);
    if (report.cancelled)
        print("cancelled after {} of {} conversations: the tables cover those that every method decoded\n",
              report.finished_conversations, report.conversations);
}

Result<int> do_bench(BenchArguments& options) {
    if (!options.heads.empty()) options.config.heads = split_specs(options.heads);
    std::vector<std::string> heads = options.config.heads;
    heads.insert(heads.end(), options.config.methods.begin(), options.config.methods.end());
    DS_TRY(check_sampling_used(options.config.run, heads));
    DS_TRY(prepare_capture(options.shard, options.config.run));
    options.config.plain = !options.no_plain;
    options.config.control = !options.no_control;
    return run_job(
        options.output,
        [&](const JobHooks& hooks, DebugGate& gate) { return run_bench(options.config, gate, hooks); },
        [&](const BenchReport& done) { return bench_json(done, options.config.run.shard); }, print_bench,
        [](const BenchReport& done) -> Result<int> {
            if (!done.storage_error.empty()) return failed("{}", done.storage_error);
            return done.cancelled ? 130 : 0;
        });
}

/// Throws ValidationError for the head of a drafter without one, and the tree of one that drafts nothing.
void check_method_used(const std::string& method) {
    const DrafterInfo drafter = drafter_traits(method.substr(0, method.find(' ')));
    if (method.find(" x ") != std::string::npos && !drafter.uses_head)
        throw CLI::ValidationError("--method " + method, "this drafter has no LM head; leave the head out");
    if (method.find(" @ ") != std::string::npos && !drafter.drafts)
        throw CLI::ValidationError("--method " + method, "this drafter drafts nothing; leave the tree out");
}

}  // namespace

void add_bench(CLI::App& program, Action& action) {
    auto options = std::make_shared<BenchArguments>();
    BenchConfig& config = options->config;
    CLI::App* command = program.add_subcommand(
        "bench", "Compare heads, drafters and trees on the same prompts: method x category, with intervals");
    command->footer(
        "Example: draftscope bench --prompts assets/prompts/spec_bench_half.jsonl --limit 24 --balanced "
        "--heads full,fr-spec:v=8192,microspec --tree chain=3 --method \"ngram @ chain=3\"");
    auto* prompts =
        command->add_option("--prompts", config.run.prompts_file,
                            "prompts, chat messages or turns: JSONL or a JSON array; - = standard input");
    prompts->required();
    add_spec_list(*command, "--heads,--head", options->heads,
                  "head specs with --drafter and --tree; key=value after a comma continues the previous "
                  "spec; of " +
                      known_heads());
    command->add_option("--method", config.methods,
                        "further method (repeatable): \"DRAFTER[ x HEAD][ @ TREE]\", e.g. \"eagle3 x "
                        "microspec @ chain=2\"");
    add_decoding_options(*command, config.run);
    command->add_option("--limit", config.run.limit, "conversations taken from the file (0 = all)");
    command->add_flag("--balanced,--stratify", config.run.balanced,
                      "take them evenly from the tasks (MT-Bench is one)");
    add_shard_option(*command, options->shard, "--save");
    command->add_option(
        "--save", config.run.save,
        "capture file to write, with a run for each method and block; draftscope merge --pool "
        "joins them");
    command->add_flag("--overwrite", config.run.overwrite, "replace an existing capture file");
    add_resume_option(*command, config.run.resume);
    add_tag_option(*command, config.run.tags);
    command
        ->add_option("--repeat", config.repeat,
                     "repetitions of every block, each with a seed of its own; default 3 at temperature > 0, "
                     "else 1 (our default)")
        ->check(CLI::PositiveNumber);
    add_shown(*command, "--block", config.block,
              "conversations that a method decodes before the next method's turn (our default)");
    command->add_flag("--no-plain", options->no_plain, "without --drafter none, and thus no speed-up");
    command->add_flag("--no-control", options->no_control,
                      "without decoding the first method twice, and thus no noise floor");
    add_output_options(*command, options->output);
    command->callback([options, command, &action] {
        choose_drafter(options->config.run);
        check_heads_used(*command, {options->config.run.drafter});
        for (const std::string& method : options->config.methods) check_method_used(method);
        action = [options] { return do_bench(*options); };
    });
}

}  // namespace draftscope::cli

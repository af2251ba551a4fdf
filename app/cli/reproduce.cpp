#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/version.h"
#include "app/jobs/reproduce/reproduce_job.h"
#include "base/format_count.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct ReproduceArguments {
    ReproduceConfig config;
    bool list = false;
    JobOutput output;
};

constexpr auto value_fields =
    join(DS_FIELDS(PaperValue, column, quantity, ours), intervals_of(DS_FIELDS(PaperValue, ours)),
         field("ours_sd", &PaperValue::ours_deviation), field("published", &PaperValue::value),
         field("published_sd", &PaperValue::deviation));
constexpr auto row_fields =
    join(null_if_none(join(DS_FIELDS(PaperRow, method), field("missing", &PaperRow::needs))),
         field("row", &PaperRow::name), DS_FIELDS(PaperRow, kind, notes),
         DS_FIELDS(PaperRow, rho_tau, speedup_vs_full),
         intervals_of(DS_FIELDS(PaperRow, rho_tau, speedup_vs_full)),
         as(list_of(value_fields), DS_FIELDS(PaperRow, values)));

json block_json(const PaperBlock& block) {
    json out = write_fields(
        join(field("setup", &PaperBlock::label), field("speeds_with_prefill", &PaperBlock::with_prefill),
             null_if_none(DS_FIELDS(PaperBlock, verified)), DS_FIELDS(PaperBlock, repeat),
             as(list_of(row_fields), DS_FIELDS(PaperBlock, rows))),
        block);
    out.update(write_fields(
        DS_FIELDS(BenchReport, first_seed, conversations, finished_conversations, threads), block.bench));
    out.update(
        write_fields(DS_FIELDS(RunConfig, drafter, tree, temperature, batch, max_new, verify), block.run));
    return out;
}

json reproduce_json(const ReproduceReport& report) {
    json out = write_fields(DS_FIELDS(ReproduceReport, target, synthetic, precision, backend, vocabulary,
                                      conversations, tasks_left_out, differences, cancelled, seconds),
                            report);
    out.update(write_fields(
        join(field("table", &PaperTable::name), DS_FIELDS(PaperTable, paper, arxiv, title),
             field("against", &PaperTable::target), field("paper_vocabulary", &PaperTable::vocabulary)),
        report.table));
    out["version"] = version;
    out["blocks"] = json::array();
    for (const PaperBlock& block : report.table.blocks) out["blocks"].push_back(block_json(block));
    return out;
}

int digits_of(const std::string& quantity) {
    if (quantity == "active_tokens") return 0;
    if (quantity == "tokens_per_second") return 1;
    return quantity == "rho_tau" || quantity == "nu" ? 3 : 2;
}

std::string cell_text(const std::optional<double>& value, const std::optional<double>& deviation,
                      int digits) {
    return number(value, digits) + (value && deviation ? fmt::format(" +-{:.{}f}", *deviation, digits) : "");
}

std::string range_text(const PaperValue& value, int digits) {
    if (!value.ours || !value.ours->interval) return {};
    const Interval& interval = *value.ours->interval;
    return fmt::format("{:.{}f}-{:.{}f}", interval.low, digits, interval.high, digits);
}

/// Returns the values of one printed table, as places in the list of a row. Quantities with an average alone
/// are columns of the first table.
std::vector<std::vector<std::size_t>> group_by_quantity(const std::vector<PaperValue>& values) {
    std::map<std::string, std::size_t> tables;  // by quantity
    for (const PaperValue& value : values)
        if (value.column != "Average") tables.emplace(value.quantity, tables.size());
    std::vector<std::vector<std::size_t>> groups(std::max<std::size_t>(tables.size(), 1));
    for (std::size_t v = 0; v < values.size(); ++v) {
        const auto found = tables.find(values[v].quantity);
        groups[found == tables.end() ? 0 : found->second].push_back(v);
    }
    return groups;
}

/// Returns a table: of each row a line with our values, one with their intervals, and one with the paper's.
std::string table_text(const PaperBlock& block, const std::vector<std::size_t>& places, const char* mark) {
    const PaperValue& first = block.rows.front().values[places.front()];
    std::vector<std::string> header = {first.quantity, ""};
    for (const std::size_t place : places) {
        const PaperValue& value = block.rows.front().values[place];
        header.push_back(value.quantity == first.quantity ? value.column : value.quantity);
        if (value.column == "Average") header.back() += mark;
    }
    if (first.column == "Average") header[2] = std::exchange(header[0], "average") + mark;
    std::vector<std::vector<std::string>> lines;
    for (const PaperRow& row : block.rows) {
        std::vector<std::string> ours = {row.name, row.needs.empty() ? "ours" : "not run"};
        std::vector<std::string> intervals = {"", "95 %"}, paper = {"", "paper"};
        bool has_interval = false, has_paper = false;
        for (const std::size_t place : places) {
            const PaperValue& value = row.values[place];
            const int digits = digits_of(value.quantity);
            intervals.push_back(range_text(value, digits));
            has_interval = has_interval || !intervals.back().empty();
            has_paper = has_paper || value.value;
            ours.push_back(cell_text(value.ours ? std::optional(value.ours->value) : std::nullopt,
                                     value.ours_deviation, digits));
            paper.push_back(cell_text(value.value, value.deviation, digits));
        }
        lines.push_back(std::move(ours));
        if (has_interval) lines.push_back(std::move(intervals));
        if (has_paper) lines.push_back(std::move(paper));
    }
    return format_table(header, lines);
}

/// Returns a line with rho_tau of each row, ours and the paper's. It compares across targets, tau does not.
/// "" without a full head.
std::string shape_text(const PaperBlock& block) {
    std::string ours, paper, level;
    std::optional<double> full;  // the paper's tau
    for (const PaperRow& row : block.rows)
        for (const PaperValue& value : row.values) {
            const bool tau = value.quantity == "tau" && value.column == "Average";
            if (!tau || !value.ours || !value.value || !row.rho_tau) continue;
            if (is_full_head(row.head)) {
                full = value.value;
                level = fmt::format("{:.2f}, paper {:.2f}", value.ours->value, *full);
            } else if (full) {
                ours += fmt::format(" {:.3f}", row.rho_tau->value);
                paper += fmt::format(" {:.3f}", *value.value / *full);
            }
        }
    if (ours.empty()) return {};
    return fmt::format("compare the shape, not the level: rho_tau by row{}, paper{}; tau of full {}\n\n",
                       ours, paper, level);
}

void print_block(const PaperBlock& block, const char* mark) {
    const RunConfig& run = block.run;
    const std::string check = run.temperature > 0 ? " --verify " + run.verify : "";
    print("\n{}{}{} @ {}, T={:g}{}, batch {}, {}, {} tokens, speeds {} prefill\n", block.label,
          block.label.empty() ? "" : ": ", run.drafter, run.tree, run.temperature, check, run.batch,
          format_count(block.repeat, "repetition"), run.max_new, block.with_prefill ? "with" : "without");
    if (!check.empty()) print("the paper checks drafts {}\n", block.verified);
    print("\n{}", shape_text(block));
    std::string separator;
    for (const auto& places : group_by_quantity(block.rows.front().values))
        print("{}{}", std::exchange(separator, "\n"), table_text(block, places, mark));
    std::vector<std::pair<std::string, std::string>> missing;
    for (const PaperRow& row : block.rows)
        if (!missing.empty() && missing.back().first == row.needs)
            missing.back().second += "; " + row.name;
        else
            missing.emplace_back(row.needs, row.name);
    for (const auto& [reason, rows] : missing)
        if (!reason.empty()) print("not run: {}: {}\n", rows, reason);
}

void print_reproduce(const ReproduceReport& report) {
    const PaperTable& table = report.table;
    print("{} (arXiv {}), {}: {}\n", table.paper, table.arxiv, table.table, table.title);
    for (const PaperBlock& block : table.blocks)
        if (report.cancelled && block.bench.finished_conversations == 0)
            print("\ncancelled before every method had decoded a conversation\n");
        else
            print_block(block, report.tasks_left_out.empty() ? "" : "*");
    if (!report.tasks_left_out.empty()) print("* over fewer tasks than the paper's, see below\n");
    int conversations = 0;
    for (const auto& [task, count] : report.conversations) conversations += count;
    print("\n{}\n\nwhat differs:\n", interval_text(static_cast<std::size_t>(conversations)));
    for (const std::string& line : report.differences) print("- {}\n", line);
    if (report.cancelled) print("cancelled: the values cover what every method decoded\n");
}

Result<int> print_list(bool as_json) {
    const auto tables = read_paper_tables();
    if (!tables.ok()) return tables.error();
    json list = json::array();
    std::vector<std::vector<std::string>> rows;
    for (const PaperTable& table : *tables) {
        std::vector<std::string> quantities;
        for (const PaperValue& value : table.blocks.front().rows.front().values)
            if (std::ranges::find(quantities, value.quantity) == quantities.end())
                quantities.push_back(value.quantity);
        list.push_back({{"table", table.name},
                        {"title", table.title},
                        {"targets", table.targets},
                        {"quantities", quantities}});
        rows.push_back({table.name, fmt::format("{}", fmt::join(quantities, ", ")),
                        fmt::format("{}", fmt::join(table.targets, ", "))});
    }
    if (as_json)
        print_document({{"version", version}, {"tables", std::move(list)}});
    else
        print("{}", format_table({"table", "quantities", "targets in the paper"}, rows));
    return 0;
}

Result<int> do_reproduce(const ReproduceArguments& options) {
    if (options.list) return print_list(options.output.json);
    return run_job(
        options.output,
        [&](const JobHooks& hooks, DebugGate& gate) { return run_reproduce(options.config, gate, hooks); },
        reproduce_json, print_reproduce,
        [](const ReproduceReport& done) { return done.cancelled ? 130 : 0; });
}

}  // namespace

void add_reproduce(CLI::App& program, Action& action) {
    auto options = std::make_shared<ReproduceArguments>();
    ReproduceConfig& config = options->config;
    CLI::App* command = program.add_subcommand(
        "reproduce", "Measure a table of a paper again, here, and print the published values next to ours");
    command->footer(
        "Example: draftscope reproduce slimspec/table-5 --limit 6 --max-new 8\n"
        "         draftscope reproduce --list");
    CLI::Option* table = command->add_option("TABLE", config.table, "a name of --list, as fr-spec/table-1");
    CLI::Option* list =
        command->add_flag("--list", options->list, "list the tables that can be measured again");
    table->excludes(list);
    command->add_option("--against", config.against,
                        "target whose published values are shown (default: the table's first)");
    add_model_option(*command, config.run.model);
    command->add_option("--drafter,--drafters", config.run.drafter,
                        "NAME[:PATH[,KEY=VALUE...]] (default: the paper's kind of drafter)");
    command->add_option("--tree", config.run.tree, "tree of every method (default: the paper's)");
    command->add_option("--verify", config.run.verify,
                        "how drafts are checked at a temperature, match or pq (default: as the paper)");
    command->add_option(
        "--head-weights", config.head_weights,
        "HEAD=PATH, weights file or ranking of a head (repeatable; files of one head are told "
        "apart by their sizes)");
    command->add_option("--prompts", config.prompts,
                        "JSONL files instead of the shipped halves of Spec-Bench and HumanEval (repeatable)");
    command->add_option(
        "--recording", config.recording,
        "folder of draftscope record: acceptance is replayed along it, about ten times faster; "
        "for greedy tables without speeds");
    command->add_option("--limit", config.run.limit, "conversations of each task, at least 6 (0 = all)");
    command->add_option("--max-new", config.run.max_new,
                        "tokens to generate per prompt (default: the paper's)");
    command->add_option("--batch", config.run.batch, "sequences in lockstep (default: the paper's)");
    command->add_option("--repeat", config.repeat, "repetitions (default: the paper's)");
    add_shown(*command, "--backend", config.run.backend, "cpu, cuda, or auto: cuda if there is a GPU");
    add_shown(*command, "--precision", config.run.precision, "f32, bf16, int8, int4 or auto");
    add_threads_option(*command, config.run.threads);
    command->add_flag("--ignore-eos", config.run.ignore_eos, "continue past the end of text");
    add_template_options(*command, config.run);
    add_output_options(*command, options->output);
    command->callback([options, &action] {
        if (options->config.table.empty() && !options->list)
            throw CLI::ValidationError("TABLE", "is required: a name of draftscope reproduce --list");
        action = [options] { return do_reproduce(*options); };
    });
}

}  // namespace draftscope::cli

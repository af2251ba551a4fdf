#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "app/cli/cli.h"
#include "app/cli/head_tables.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/shard_option.h"
#include "app/cli/tables.h"
#include "app/cli/version.h"
#include "app/jobs/replay/replay_job.h"
#include "app/jobs/resolve/resolve.h"
#include "capture/conversations.h"
#include "capture/head_traits.h"
#include "capture/queries.h"
#include "engine/replay/replay_stats.h"
#include "stats/cost_model.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct ReplayArguments {
    ReplayConfig config;
    std::string heads{full_head_id};
    JobOutput output;
    bool no_mass = false;
    std::string shard;
};

/// Returns one tally per head, over the prompts selected by `wanted`.
template <typename Wanted>
std::vector<ReplayStats> tally(const ReplayReport& report, Wanted wanted) {
    std::vector<ReplayStats> out(report.heads.size());
    for (std::size_t h = 0; h < out.size(); ++h)
        for (std::size_t p = 0; p < report.result.rounds[h].size(); ++p)
            if (wanted(p)) {
                out[h].add(report.result.rounds[h][p]);
                out[h].add(report.result.overlaps[h][p]);
            }
    return out;
}

/// Returns the place of head `full`.
std::optional<std::size_t> find_full(const ReplayReport& report) {
    const auto found = std::ranges::find_if(report.heads, is_full_head, &ReplayedHead::spec);
    return found == report.heads.end() ? std::nullopt
                                       : std::optional<std::size_t>(found - report.heads.begin());
}

/// Returns tau of head `full` in the same set of rounds.
std::optional<double> full_tau(const ReplayReport& report, const std::vector<ReplayStats>& tallies) {
    const auto full = find_full(report);
    return full ? tallies[*full].tau() : std::nullopt;
}

/// Returns the number of tokens whose static head has as many FLOPs per round; absent without head `full`.
/// For SpecVocab it is V d'/d + k and its down-projection (arXiv 2602.13836, section 6).
std::optional<double> static_size(const ReplayReport& report, const std::vector<ReplayStats>& tallies,
                                  std::size_t head) {
    const auto place = find_full(report);
    if (!place || tallies[*place].flops_per_round() <= 0) return std::nullopt;
    const ReplayStats& full = tallies[*place];
    return full.active_rows() * tallies[head].flops_per_round() / full.flops_per_round();
}

/// Returns DynaSpec's speed-up relative to autoregressive decoding; absent without alpha or costs.
std::optional<double> expected_speedup(const ReplayReport& report, const std::optional<double>& alpha) {
    if (!alpha || report.costs.empty()) return std::nullopt;
    return speculation_speedup(*alpha, report.levels, report.costs[0], report.costs[1]);
}

std::optional<double> rho(std::optional<double> tau, std::optional<double> full) {
    if (!tau || !full || *full <= 0) return std::nullopt;
    return *tau / *full;
}

/// Returns tau and rho_tau with intervals. The resampling unit is a conversation, for both the head and the
/// full head.
AcceptanceCost estimate_acceptance(const ReplayReport& report, std::size_t head) {
    const auto full = find_full(report);
    const auto make_unit = [&](std::size_t h, std::size_t prompt) {
        ReplayStats tally;
        tally.add(report.result.rounds[h][prompt]);
        HeadSample unit;
        unit.rounds = static_cast<double>(tally.rounds);
        unit.committed = static_cast<double>(tally.committed);
        return unit;
    };
    const std::vector<std::size_t> conversations = conversation_of_prompts(report.recording->info().prompts);
    std::vector<PairedSample> units;
    for (std::size_t p = 0; p < report.result.rounds[head].size(); ++p) {
        if (units.size() <= conversations[p]) units.resize(conversations[p] + 1);
        units[conversations[p]].head += make_unit(head, p);
        if (full) units[conversations[p]].full += make_unit(*full, p);
    }
    AcceptanceCost cost = acceptance_cost(units);
    if (full == head) cost.rho_tau = {1, {}};  // a head against itself has no spread
    return cost;
}

json replayed_heads_json(const ReplayReport& report, const std::vector<ReplayStats>& tallies) {
    json heads = list_of(join(
        DS_FIELDS(ReplayStats, tau, tau_unclipped, rounds), field("drafted", &ReplayStats::draft_tokens),
        DS_FIELDS(ReplayStats, accepted, committed, histogram, per_depth, coverage, covered_mass, active_rows,
                  row_tokens, bytes_per_round, flops_per_round, alpha, alpha_per_depth)))(tallies);
    const auto full = full_tau(report, tallies);
    for (std::size_t h = 0; h < tallies.size(); ++h) {
        const ReplayedHead& head = report.heads[h];
        const auto alpha = tallies[h].alpha();
        heads[h].update(
            {{"head", or_null(head.spec)},
             {"rho_tau", or_null(rho(tallies[h].tau(), full))},
             {"exact", head.estimates.empty()},
             {"static_size_by_flops", or_null(static_size(report, tallies, h))},
             {"expected_tokens", alpha ? json(expected_tokens(*alpha, report.levels)) : json(nullptr)},
             {"expected_speedup", or_null(expected_speedup(report, alpha))}});
        if (!head.estimates.empty()) heads[h]["estimate"] = head.estimates;
    }
    return heads;
}

json file_json(const std::optional<HeadFileReport>& file) {
    if (!file) return nullptr;
    return write_fields(join(DS_FIELDS(HeadFileReport, path, parameters, lambda, held_out),
                             null_if_none(DS_FIELDS(HeadFileReport, trained, source))),
                        *file);
}

/// Returns what the heads' files say about their making; "" if no head has a file.
std::string file_table(const ReplayReport& report) {
    std::vector<std::vector<std::string>> rows;
    for (const ReplayedHead& head : report.heads) {
        if (!head.file) continue;
        std::string parameters;
        for (const auto& [name, value] : head.file->parameters)
            parameters += fmt::format("{}{}={}", parameters.empty() ? "" : " ", name, value);
        const auto held_out = [&](const char* name) {
            const auto found = head.file->held_out.find(name);
            return found == head.file->held_out.end() ? "-" : fmt::format("{:.3f}", found->second);
        };
        rows.push_back({head.spec, or_dash(parameters), or_dash(head.file->trained),
                        number(head.file->lambda, 2), held_out("kl"), held_out("top1"),
                        or_dash(head.file->source)});
    }
    if (rows.empty()) return {};
    return "\n" + format_table({"files", "parameters", "trained", "lambda", "held-out KL", "top-1",
                                "ranking counted on"},
                               rows);
}

json with_intervals(const ReplayReport& report, json heads) {
    for (std::size_t h = 0; h < heads.size(); ++h) {
        const AcceptanceCost cost = estimate_acceptance(report, h);
        heads[h]["intervals"] = {{"tau", estimate_interval_json(cost.tau)},
                                 {"rho_tau", estimate_interval_json(cost.rho_tau)}};
        heads[h]["file"] = file_json(report.heads[h].file);
    }
    return heads;
}

/// Returns the categories in the order of the recording.
std::vector<std::string> list_categories(const RecordingInfo& info) {
    std::vector<std::string> names;
    for (const RecordedPrompt& prompt : info.prompts)
        if (std::find(names.begin(), names.end(), prompt.category) == names.end())
            names.push_back(prompt.category);
    return names;
}

std::vector<ReplayStats> tally_category(const ReplayReport& report, const std::string& name) {
    return tally(report, [&](std::size_t p) { return report.recording->info().prompts[p].category == name; });
}

json replay_json(const ReplayReport& report, const Shard& shard) {
    const RecordingInfo& info = report.recording->info();
    json prompts = json::array(), categories = json::array();
    for (std::size_t p = 0; p < info.prompts.size(); ++p) {
        const RecordedPrompt& prompt = info.prompts[p];
        json& one = prompts.emplace_back(
            write_fields(join(DS_FIELDS(RecordedPrompt, id, category, turn, prompt_tokens),
                              field("generated", &RecordedPrompt::generated_tokens)),
                         prompt));
        one["heads"] = replayed_heads_json(report, tally(report, [&](std::size_t q) { return q == p; }));
    }
    for (const std::string& name : list_categories(info))
        categories.push_back(
            {{"category", name}, {"heads", replayed_heads_json(report, tally_category(report, name))}});
    json out =
        write_fields(DS_FIELDS(ReplayReport, drafter, tree, precision, seconds, warnings, notes), report);
    out.update(
        {{"version", version},
         {"trace", report.recording->folder()},
         {"shard", shard_json(shard)},
         {"source", info.source},
         {"target", info.target.name},
         {"verify", "match"},
         {"temperature", info.sampling.temperature},
         {"alpha_temperature", info.sampling.temperature > 0 ? info.sampling.temperature : 1.0},
         {"seed", info.sampling.seed},
         {"acceptance", "replayed"},
         {"rounds_per_second",
          report.seconds > 0 ? static_cast<double>(report.rounds()) / report.seconds : 0},
         {"agreement", or_null(report.result.agreement)},
         {"heads", with_intervals(
                       report, replayed_heads_json(report, tally(report, [](std::size_t) { return true; })))},
         {"categories", std::move(categories)},
         {"prompts", std::move(prompts)}});
    return out;
}

/// Returns tau of each head by category; "" for a recording of one category.
std::string category_table(const ReplayReport& report) {
    const std::vector<std::string> names = list_categories(report.recording->info());
    if (names.size() < 2) return {};
    std::vector<std::string> header = {"tau by category", "prompts"};
    for (const ReplayedHead& head : report.heads) header.push_back(or_dash(head.spec));
    std::vector<std::vector<std::string>> rows;
    for (const std::string& name : names) {
        const auto prompts =
            std::ranges::count(report.recording->info().prompts, name, &RecordedPrompt::category);
        std::vector<std::string> row = {or_dash(name), std::to_string(prompts)};
        for (const ReplayStats& one : tally_category(report, name)) row.push_back(number(one.tau(), 3));
        rows.push_back(std::move(row));
    }
    return "\n" + format_table(header, rows);
}

/// Returns the sampling that alpha is computed with: that of the recording, T=1 if it is greedy.
std::string sampling_text(const Sampling& sampling) {
    if (sampling.temperature <= 0) return "T=1 (the recording is greedy)";
    std::string text = fmt::format("T={:g}", sampling.temperature);
    if (sampling.top_k > 0) text += fmt::format(", top-k {}", sampling.top_k);
    if (sampling.top_p < 1) text += fmt::format(", top-p {:g}", sampling.top_p);
    return text;
}

/// Returns the table of alpha, the overlap of draft and target distributions; "" if not requested.
std::string overlap_table(const ReplayReport& report, const std::vector<ReplayStats>& tallies) {
    std::vector<std::string> header = {fmt::format("chain={}", report.levels), "alpha", "tokens", "x AR"};
    for (int level = 1; level <= report.levels; ++level) header.push_back(fmt::format("alpha {}", level));
    std::vector<std::vector<std::string>> rows;
    bool any = false;
    for (std::size_t h = 0; h < tallies.size(); ++h) {
        const auto alpha = tallies[h].alpha();
        any = any || alpha;
        std::vector<std::string> row = {
            report.heads[h].spec, number(alpha, 4),
            number(alpha ? std::optional(expected_tokens(*alpha, report.levels)) : std::nullopt, 3),
            number(expected_speedup(report, alpha), 3)};
        const std::vector<double> levels = tallies[h].alpha_per_depth();
        for (std::size_t l = 0; l < static_cast<std::size_t>(report.levels); ++l)
            row.push_back(number(l < levels.size() ? std::optional(levels[l]) : std::nullopt, 4));
        rows.push_back(std::move(row));
    }
    if (!any) return {};
    return fmt::format(
        "\n{}alpha at {}: sum of min(p, q) over all tokens, mean over the positions of a chain whose drafts "
        "before were accepted; tokens: a round's, if each draft is accepted with alpha alone (DynaSpec, eq. "
        "1)\n",
        format_table(header, rows), sampling_text(report.recording->info().sampling));
}

void print_replay(const ReplayReport& report) {
    const RecordingInfo& info = report.recording->info();
    print("{}  {} tokens in {} prompts by {}   drafter {}  tree {}  {}  {}\n\n", info.target.name, info.rows,
          info.prompts.size(), info.source.empty() ? "an unknown program" : info.source, report.drafter,
          report.tree, report.precision, temperature_text(info.sampling.temperature));
    const auto tallies = tally(report, [](std::size_t) { return true; });
    std::vector<std::vector<std::string>> rows;
    std::size_t depths = 0;
    for (const ReplayStats& one : tallies) depths = std::max(depths, one.depths.size());
    for (std::size_t h = 0; h < tallies.size(); ++h) {
        const ReplayStats& one = tallies[h];
        std::vector<std::string> row = {or_dash(report.heads[h].spec),
                                        number(one.tau(), 3),
                                        with_interval(estimate_acceptance(report, h).rho_tau),
                                        std::to_string(one.rounds),
                                        number(one.coverage(), 4),
                                        number(one.covered_mass(), 4),
                                        size_text(one.row_tokens(), one.active_rows()),
                                        fmt::format("{:.0f}", one.bytes_per_round() / 1e3),
                                        fmt::format("{:.1f}", one.flops_per_round() / 1e6),
                                        number(static_size(report, tallies, h), 0),
                                        report.heads[h].estimates.empty() ? "exact" : "estimate"};
        const auto per_depth = one.per_depth();
        for (std::size_t d = 0; d < depths; ++d)
            row.push_back(d < per_depth.size() ? fmt::format("{:.2f}", per_depth[d]) : "-");
        rows.push_back(std::move(row));
    }
    std::vector<std::string> header = {"head", "tau", "rho_tau", "rounds", "coverage", "mass",
                                       "rows", "kB",  "MFLOP",   "static", ""};
    for (std::size_t d = 0; d < depths; ++d) header.push_back(fmt::format("d{}", d + 1));
    print("{}", format_table(header, rows));
    print("kB and MFLOP: of a round's head calls\n{}",
          size_note(std::ranges::any_of(tallies, [](const ReplayStats& one) {
              return has_own_shortlists(one.row_tokens(), one.active_rows());
          })));
    if (!tallies.empty() && static_size(report, tallies, 0))
        print("static: tokens of a static head with as many FLOPs; SpecVocab's V d'/d + k\n");
    if (!tallies.empty() && full_tau(report, tallies))
        print("rho_tau: {}\n", interval_text(estimate_acceptance(report, 0).conversations));
    print("{}{}{}", overlap_table(report, tallies), category_table(report), file_table(report));
    std::set<std::string> reasons;
    for (const ReplayedHead& head : report.heads)
        for (const std::string& reason : head.estimates)
            if (reasons.insert(reason).second) print("estimate: {}\n", reason);
    for (const std::string& warning : report.warnings) print("warning: {}\n", warning);
    print("\n{} rounds in {:.2f} s: {:.0f} heads x rounds per second on {} threads\n", report.rounds(),
          report.seconds, report.seconds > 0 ? static_cast<double>(report.rounds()) / report.seconds : 0.0,
          report.threads);
}

Result<int> do_replay(ReplayArguments& options) {
    options.config.heads = split_specs(options.heads);
    options.config.mass = !options.no_mass;
    DS_TRY(choose_shard(options.shard, options.config.shard));
    return run_job(
        options.output, [&](const JobHooks& hooks, DebugGate&) { return run_replay(options.config, hooks); },
        [&](const ReplayReport& report) { return replay_json(report, options.config.shard); }, print_replay);
}

}  // namespace

void add_replay(CLI::App& program, Action& action) {
    auto options = std::make_shared<ReplayArguments>();
    ReplayConfig& config = options->config;
    CLI::App* command = program.add_subcommand(
        "replay",
        "Compute the exact acceptance of heads, drafters and trees along a recording, without the target");
    command->footer(
        "Example: draftscope replay --recording demo.recording --heads full,fr-spec:v=8192,microspec "
        "--drafter eagle3 --tree depth=3,topk=4,nodes=12");
    command
        ->add_option("--recording,--trace", config.recording,
                     "recording, a folder that draftscope record or record_decode.py wrote")
        ->required();
    add_spec_list(*command, "--heads,--head", options->heads,
                  "head specs; key=value after a comma continues the previous spec");
    add_shown(*command, "--drafter,--drafters", config.drafter, "NAME[:PATH[,KEY=VALUE...]]");
    command->add_option("--tree", config.tree,
                        "depth=3,topk=4,nodes=12[,order=fr] | chain=6 | paper:fr-spec ... | "
                        "choices:mc_sim_7b_63 | choices:FILE | adaptive:transformers ...");
    command->add_option("--head-weights,--artefact", config.artefacts,
                        "HEAD=PATH, weights file of a head (repeatable, one per head)");
    command->add_option("--model", config.model,
                        "the target's files, of which only LM head and embedding are read (default: the "
                        "recording's weights.safetensors, else the demo model)");
    add_shown(*command, "--precision", config.precision,
              "f32, bf16, int8, int4 or auto: as recorded, else bf16");
    command->add_option("--max-new", config.max_new,
                        "truncate the texts to this many tokens (0 = as recorded)");
    add_shown(*command, "--batch", config.batch, "prompts replayed in lockstep; no result depends on it");
    add_shard_option(*command, options->shard, "");
    add_threads_option(*command, config.threads);
    command->add_flag("--no-mass", options->no_mass, "omit covered_mass: saves one LM head call per token");
    command->add_flag("--overlap", config.overlap,
                      "also compute alpha, the overlap of draft and target distributions: replays each head "
                      "a second time, as a chain, and computes all its logits");
    add_list(*command, "--costs", config.costs,
             "DRAFT,VERIFY: time of a draft and of a verification in target passes, for the expected "
             "speed-up with --overlap");
    add_output_options(*command, options->output);
    command->callback([options, command, &action] {
        check_heads_used(*command, {options->config.drafter});
        action = [options] { return do_replay(*options); };
    });
}

}  // namespace draftscope::cli
